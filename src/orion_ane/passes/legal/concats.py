"""Concat spelled as a sum of parts, each in a frame of zeros (ANE001).

Equal as numbers; −0 comes back as 0.  Integers and bools have no pad, and stay as they are.
"""

from __future__ import annotations

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import pad
from orion_ane.ops.shape import Concat
from orion_ane.passes.rewrite import rewrite


def sum_parts(node: Node) -> Node | None:
    """concat(a, b, …) -> pad(a) + pad(b) + …."""
    if not isinstance(node.op, Concat) or not node.type.dtype.is_float:
        return None
    axis, whole = node.op.axis % node.type.rank, node.type.shape
    start, total = 0, None
    for part in node.args:
        size = part.type.shape[axis]
        before = tuple(start * (i == axis) for i in range(len(whole)))
        after = tuple((whole[axis] - start - size) * (i == axis) for i in range(len(whole)))
        framed = pad(part, before, after) if len(node.args) > 1 else part
        total = framed if total is None else total + framed
        start += size
    return total


def concats(graph: Graph, target: Target) -> Graph:
    """The graph without concats of floats."""
    return rewrite(graph, sum_parts) if "ANE001" in target.limits else graph
