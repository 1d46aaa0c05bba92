"""Where findings are kept: a target file for who runs programs, a report for who reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orion_ane.artefacts.atomic import write_file
from orion_ane.probes.probe import Finding
from orion_ane.probes.run import document, passes


def report(findings: Sequence[Finding], *, base: str, device: Mapping[str, Any]) -> dict[str, Any]:
    """All that was found, as one document.

    Args:
        findings: of the probes.
        base: the target that answers what nobody asked.
        device: what was asked.
    """
    reasons = passes(findings)
    return {
        "passed": not reasons,
        "reasons": list(reasons),
        "device": dict(device),
        "target": document(findings, base=base),
        "probes": [finding.row() for finding in findings],
    }


def keep(found: Mapping[str, Any], out: Path) -> Path:
    """Write the target, where the probes have passed, and the report beside it.

    Args:
        found: the report.
        out: the target's file.

    Returns:
        The report's file.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = report_of(out)
    _put(beside, found)
    if found["passed"]:
        _put(out, found["target"])
    return beside


def report_of(out: Path) -> Path:
    """The file of a report, beside its target's."""
    return out.with_name(f"{out.stem}.report{out.suffix}")


def is_kept(file: Path) -> bool:
    """Whether a file has what `keep` writes, of any device: a target in full, or a report."""
    ours = (document(()).keys(), report((), base="strict", device={}).keys())
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() in ours


def _put(file: Path, content: Mapping[str, Any]) -> None:
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    write_file(beside, json.dumps(content, indent=2).encode() + b"\n")
    beside.replace(file)
