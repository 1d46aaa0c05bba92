"""Slices of the last axis from behind its start, taken of a transpose (ANE172, ANE173).

The last two axes have the same bounds on every target, so that what fits still does.
"""

from __future__ import annotations

from dataclasses import fields

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import reshape, transpose
from orion_ane.ops.foreign.slices import StridedSlice
from orion_ane.ops.shape import Slice
from orion_ane.passes.rewrite import Rule, rewrite


def turn_slices() -> Rule:
    """A rule: a slice that begins behind 0 in the last axis -> one of the axis before it.

    Slices of one value share its transpose.
    """
    turned: dict[Node, Node] = {}

    def turn(node: Node) -> Node | None:
        op = node.op
        if not isinstance(op, Slice | StridedSlice) or not op.begin[-1]:
            return None
        (x,) = node.args
        if x not in turned:
            column = reshape(x, (*x.type.shape, 1)) if x.type.rank == 1 else _swapped(x)
            turned[x] = column
        of_rows = {field.name: _moved(getattr(op, field.name), field.name) for field in fields(op)}
        cut = Node(type(op)(**of_rows), (turned[x],))
        return reshape(cut, node.type.shape) if x.type.rank == 1 else _swapped(cut)

    return turn


def _swapped(x: Node) -> Node:
    """The last two axes in each other's place."""
    axes = range(x.type.rank)
    return transpose(x, (*axes[:-2], axes[-1], axes[-2]))


def _moved(walk: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Where a slice begins, ends or steps, as the axes lie then."""
    if len(walk) == 1:
        return (*walk, 0 if name == "begin" else 1)
    return (*walk[:-2], walk[-1], walk[-2])


def slices(graph: Graph, target: Target) -> Graph:
    """The graph without slices that begin behind 0 in the last axis."""
    if not {"ANE172", "ANE173"} & target.limits:
        return graph
    return rewrite(graph, turn_slices())
