"""Axes over what a device takes, split inside the program (ANE016, ANE107, ANE108; case A01).

A port that is too wide stays so: only who feeds it can split it.
"""

from __future__ import annotations

from orion_ane.ane.limits.shapes import AXES, CONV_READS, LONGEST, SPATIAL
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph
from orion_ane.passes.legal.splitting import Caps, Splitter

ANY = 1 << 40


def wide_axes(graph: Graph, target: Target) -> Graph:
    """The graph without values that are too wide between its ports, as far as they can be split."""
    return split(graph, caps_of(target))


def caps_of(target: Target) -> Caps:
    """What a target takes."""
    limits = target.limits
    longest = LONGEST if "ANE108" in limits else ANY
    spatial = SPATIAL if "ANE107" in limits else longest

    def axes(rank: int) -> tuple[int, ...]:
        return tuple(spatial if letter in "WHD" else longest for letter in AXES[rank])

    return Caps(axes, CONV_READS - 1 if "ANE016" in limits else ANY)


def split(graph: Graph, caps: Caps) -> Graph:
    """The graph with values in pieces that fit; `graph` itself where nothing can be mended."""
    least = min(caps.longest, caps.reads)
    if all(max(node.type.shape, default=1) <= least for node in graph.nodes):
        return graph  # as nearly always, and soon seen
    splitter = Splitter(caps)
    for node in graph.nodes:
        splitter.add(node)
    outputs = {name: splitter.value[node] for name, node in graph.outputs.items()}
    if outputs == dict(graph.outputs):
        return graph
    return Graph(graph.inputs, outputs)
