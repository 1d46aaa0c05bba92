"""orion opt: passes over a MIL text, and what a target demands of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from orion_ane.ane.targets import TARGETS, Target
from orion_ane.ane.targets import target as find_target
from orion_ane.artefacts.source import read_text, told_of
from orion_ane.cli.common import say, show
from orion_ane.errors import ConfigError, MilError
from orion_ane.ir import Graph, Node, verify
from orion_ane.mil.emit import emit_module
from orion_ane.mil.module import Function, Module
from orion_ane.mil.parse import parse
from orion_ane.passes import DEFAULT, PASSES, settle
from orion_ane.passes.legal import LEGAL, legalise, transform
from orion_ane.passes.legal.ordered_ports import numbered
from orion_ane.passes.sram import resident_bytes, working_sets

SRAM = "sram"
_HEADER = re.compile(r"(\s|//[^\n]*\n)*program\b")

EXAMPLE = f"""Example:

  orion opt model.mil --passes fold,cse --verify

Passes: {", ".join((*PASSES, SRAM))}; with a target also {", ".join(LEGAL)}.
{SRAM} changes nothing, and writes behind each statement what it works on.
"""


@click.command(epilog=EXAMPLE)
@click.argument(
    "path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE.mil|-"
)
@click.option("--passes", metavar="NAME,NAME", help="These passes, in this order, once each.")
@click.option(
    "--target",
    "name",
    metavar="NAME|FILE",
    help="What the text is to fit: paper, strict, m1 to m5, or a file.",
)
@click.option("--verify", "is_verified", is_flag=True, help="Check the graph around each pass.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def opt(
    *, path: str, passes: str | None, name: str | None, is_verified: bool, as_json: bool
) -> int:
    """Rewrite a MIL text.

    Without --passes the usual ones run until nothing changes; with --target alone, whatever the
    target demands: ports in its order, with numbers in their names, and the form that devices
    read.  Else a text with a header stays in that form, and another in the short one.
    """
    text = _piped() if path == "-" else read_text(Path(path))
    with told_of(Path(path)):
        module = parse(text)
    device = None if name is None else find_target(name)
    names = None if passes is None else [word.strip() for word in passes.split(",")]
    for word in names or ():
        if word not in (known := (*PASSES, SRAM, *LEGAL)):
            raise ConfigError("passes", "no such pass", got=word, want=", ".join(known))
    ran: list[dict[str, Any]] = []
    ports: list[dict[str, str]] = []
    functions = {}
    for label, function in module.functions.items():
        graph = _rewritten(function.graph, names, device, ran, label, is_verified)
        if names is None and device is not None:
            graph = _numbered(graph, device, label, ports)
        functions[label] = replace(function, graph=graph)
    had_header = _HEADER.match(text) is not None
    is_short = not had_header and (names is not None or device is None)
    made = emit_module(Module(functions, module.dialect, module.build_info), short=is_short)
    if names is not None and SRAM in names:
        made = _annotated(made, device or TARGETS["strict"])
    if as_json:
        answer = {"text": made, "target": device.name if device else None, "passes": ran}
        answer["ports"] = ports
        show(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        show(made, end="")
    changed = [f"{run['name']} {run['before']} -> {run['after']}" for run in ran if run["changed"]]
    told = [f"nodes: {', '.join(changed)}"] if changed else []
    if ports:
        named = (f"{one['was']} -> {one['now']}" for one in ports)
        told.append(f"ports: {', '.join(named)}")
    if not had_header and not is_short:
        told.append("in the form that devices read")
    if names is not None and SRAM in names:
        told.append("what each statement works on is written behind it")
    say("; ".join(told) or "nothing changed")
    return 0


def _piped() -> str:
    """The text on standard input."""
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("nothing is piped in: give FILE.mil, or pipe a text")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise MilError("-", "not UTF-8", got=f"byte {error.start}") from error


def _rewritten(
    graph: Graph,
    names: list[str] | None,
    device: Target | None,
    ran: list[dict[str, Any]],
    label: str,
    is_verified: bool,
) -> Graph:
    """The graph after the passes asked for; each run is noted in `ran`."""

    def note(name: str, after: Graph) -> Graph:
        if is_verified:
            verify(after)
        sizes = {"before": len(graph.nodes), "after": len(after.nodes)}
        ran.append({"function": label, "name": name, "changed": after is not graph, **sizes})
        return after

    if is_verified:
        verify(graph)
    if names is None and device is None:
        return note(",".join(DEFAULT), settle(graph))
    if names is None and device is not None:
        return note(f"legal for {device.name}", legalise(graph, device))
    for name in names or ():
        if name != SRAM:
            graph = note(name, transform(graph, [name], device))
    return graph


def _numbered(graph: Graph, device: Target, label: str, ports: list[dict[str, str]]) -> Graph:
    """The graph with ports that are named in the target's order; other names are noted."""
    made = numbered(graph, device)
    for old, new in ((graph.inputs, made.inputs), (graph.outputs, made.outputs)):
        pairs = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
        ports += [{"function": label, "was": was, "now": now} for was, now in pairs]
    return made


def _annotated(text: str, device: Target) -> str:
    """The text with what each statement works on behind it, and how that compares to the chip."""
    lines = text.split("\n")
    most = resident_bytes(device.numerics)
    for function in parse(text).functions.values():
        for line, size in _sizes(function).items():
            over = f", over the {most:,} that {device.numerics} keeps" if size > most else ""
            lines[line] += f"  // {size:,} bytes{over}"
    return "\n".join(lines)


def _sizes(function: Function) -> Mapping[int, int]:
    """The working set of each statement, by its line from 0."""
    sets = working_sets(function.graph)
    found: dict[int, int] = {}
    for statement in function.statements:
        known: list[Node] = [node for node in statement.nodes if node in sets]
        if known:
            line = statement.place.text.count("\n", 0, statement.place.offset)
            found[line] = max(sets[node] for node in known)
    return found
