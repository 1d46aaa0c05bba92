"""Slices of the last axis from behind its start, taken of a transpose (ANE172, ANE173).

The last two axes have the same bounds on every target, so that what fits still does.
"""

from __future__ import annotations

from typing import TypeAlias

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import reshape, transpose
from orion_ane.ops.foreign.slices import StridedSlice, sliced
from orion_ane.ops.shape import Slice
from orion_ane.passes.rewrite import Rule, rewrite

Walk: TypeAlias = tuple[int, ...]


def turn_slices() -> Rule:
    """A rule: a slice that begins behind 0 in the last axis -> one of the axis before it.

    Slices of one value share its transpose.  One that begins behind 0 in the axis before too is
    two slices first, or it would begin behind 0 in the last axis again.
    """
    turned: dict[Node, Node] = {}

    def turn(node: Node) -> Node | None:
        op = node.op
        if not isinstance(op, Slice | StridedSlice) or not op.begin or not op.begin[-1]:
            return None
        (x,) = node.args
        begin, count, stride = _walks(op)
        if any(begin[-2:-1]):
            rows = sliced(x, (*begin[:-1], 0), (*count[:-1], x.type.shape[-1]), (*stride[:-1], 1))
            still = len(begin) - 1
            last = (*(0,) * still, begin[-1]), (*(1,) * still, stride[-1])
            return sliced(rows, last[0], count, last[1])
        if x not in turned:
            turned[x] = reshape(x, (*x.type.shape, 1)) if len(begin) == 1 else _swapped(x)
        cut = sliced(turned[x], _moved(begin, 0), _moved(count, 1), _moved(stride, 1))
        return reshape(cut, node.type.shape) if len(begin) == 1 else _swapped(cut)

    return turn


def _walks(op: Slice | StridedSlice) -> tuple[Walk, Walk, Walk]:
    """Where a slice begins, how many elements it takes and how far apart, on each axis."""
    if isinstance(op, StridedSlice):
        return op.begin, op.count, op.stride
    count = tuple(end - begin for begin, end in zip(op.begin, op.end, strict=True))
    return op.begin, count, (1,) * len(count)


def _swapped(x: Node) -> Node:
    """The last two axes in each other's place."""
    axes = range(x.type.rank)
    return transpose(x, (*axes[:-2], axes[-1], axes[-2]))


def _moved(walk: Walk, column: int) -> Walk:
    """A walk as the axes lie then; a single axis gets a column beside it."""
    return (*walk, column) if len(walk) == 1 else (*walk[:-2], walk[-1], walk[-2])


def slices(graph: Graph, target: Target) -> Graph:
    """The graph without slices that begin behind 0 in the last axis."""
    if not {"ANE172", "ANE173"} & target.limits:
        return graph
    return rewrite(graph, turn_slices())
