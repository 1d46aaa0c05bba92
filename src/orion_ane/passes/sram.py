"""How much of the device's memory each op works on: an annotation, which changes no graph.

An op reads its operands and writes its result, each once, in rows of whole 64 bytes.  What fits
what a chip keeps resident runs from there; more is cut into tiles and streamed (ANE201: slow, no
more).  Other values that live meanwhile are left out, since only the device's compiler knows in
which order ops run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orion_ane.ane.layout import surface_bytes
from orion_ane.ir import Graph, Node

RESIDENT = MappingProxyType({"m5": 4_720_000})
"""Bytes that stay resident, by chip (ane-numerics: resident working set)."""
LEAST_RESIDENT = 2_000_000
"""Of M1; what M2 to M4 keep is not reported, so no more is counted on."""


def resident_bytes(chip: str) -> int:
    """What a chip is known to keep resident."""
    return RESIDENT.get(chip, LEAST_RESIDENT)


def working_sets(graph: Graph) -> Mapping[Node, int]:
    """The bytes that each op reads and writes; leaves have no entry."""
    return {
        node: sum(surface_bytes(value.type) for value in {*node.args, node})
        for node in graph.nodes
        if node.args
    }
