"""Ports in an order that every report of how surfaces are bound agrees on (case A11).

Devices are said to bind surfaces by name, by name with `@output` behind it, by size, or as
declared.  Where sizes do not shrink and names begin with a number, all of these are one order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from orion_ane.ane.layout import surface_bytes
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node

INPUTS = frozenset({"ANE019", "ANE133", "ANE136"})
OUTPUTS = frozenset({"ANE003", "ANE134", "ANE135"})
"""The limits on how ports are ordered and named."""


def ordered_ports(graph: Graph, target: Target) -> Graph:
    """The graph with ports from the smallest surface to the largest."""
    inputs = _by_size(graph.inputs) if INPUTS & target.limits else graph.inputs
    outputs = _by_size(graph.outputs) if OUTPUTS & target.limits else graph.outputs
    if list(inputs) == list(graph.inputs) and list(outputs) == list(graph.outputs):
        return graph
    return Graph(inputs, outputs)


def _by_size(ports: Mapping[str, Node]) -> Mapping[str, Node]:
    return dict(sorted(ports.items(), key=lambda port: surface_bytes(port[1].type)))


def numbered(graph: Graph, target: Target) -> Graph:
    """The graph with ports that are named `a00_x`, `b00_y` in the order declared.

    The numbers of one graph have one width, so that the names sort by them alone.  One that was
    numbered before is the same graph.
    """
    inputs, outputs = graph.inputs, graph.outputs
    if INPUTS & target.limits:
        inputs = dict(zip(_numbers("a", inputs), inputs.values(), strict=True))
    if OUTPUTS & target.limits:
        outputs = dict(zip(_numbers("b", outputs), outputs.values(), strict=True))
    if list(inputs) == list(graph.inputs) and list(outputs) == list(graph.outputs):
        return graph
    return Graph(inputs, outputs)


def _numbers(letter: str, ports: Mapping[str, Node]) -> list[str]:
    width = max(2, len(str(len(ports) - 1)))
    number = re.compile(rf"^{letter}\d{{2,}}_(?=[A-Za-z_])")
    return [f"{letter}{i:0{width}}_{number.sub('', name)}" for i, name in enumerate(ports)]
