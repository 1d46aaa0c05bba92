"""Concat as a sum of parts, each in a frame of zeros (ANE001), or with a plain axis (ANE139).

The sum is equal as numbers; −0 comes back as 0.  Integers and bools have no pad, and stay as they
are.
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


def count_from_the_front(node: Node) -> Node | None:
    """A concat's axis below 0 -> the same axis from the front."""
    if not isinstance(node.op, Concat) or node.op.axis >= 0:
        return None
    return Node(Concat(node.op.axis % node.type.rank), node.args)


def concats(graph: Graph, target: Target) -> Graph:
    """The graph without concats of floats, or axes that are counted from the back."""
    demanded = {"ANE001": sum_parts, "ANE139": count_from_the_front}
    rules = [rule for code, rule in demanded.items() if code in target.limits]
    return rewrite(graph, *rules) if rules else graph
