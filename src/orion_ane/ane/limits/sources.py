"""The keys under which limits name their sources, and what stands behind each."""

from __future__ import annotations

import re

_KEY = re.compile(r"MS(?=\d)|[A-Z]+")

SOURCES = {
    "OP": "the Orion paper, arXiv 2603.06728; its limits by number",
    "O": "mechramc/Orion, code and documents",
    "OF": "HiQS-Labs/Orion-fork, its constraints by number",
    "MS": "maderix, Inside the M4 Apple Neural Engine, part 2",
    "M": "maderix/ANE, its issues and pull requests by number",
    "A": "vipuldivyanshu92/ANEgpt",
    "E": "christopherkarani/Espresso, its issues by number",
    "AT": "imperatormk/ane-train: M1, program(1.0)",
    "RA": "ncdrone/autoresearch-ANE",
    "R": "ncdrone/rustane, its issues and pull requests by number",
    "PF": "maderix/ane-prefill-bench",
    "G": "sbryngelson/ane-guide, arXiv 2606.22283, by chapter",
    "AF": "sbryngelson/ANEForge, its issues by number",
    "CT": "apple/coremltools",
    "X": "others, named in place",
    "P": "public reports of single machines, collected in 2026",
}


def key_of(source: str) -> str:
    """The key that a source, as `M-PR22` or `G ch.3`, begins with; empty where it has none."""
    found = _KEY.match(source)
    return found[0] if found and found[0] in SOURCES else ""
