"""What no output needs.

A `Graph` lists what its outputs reach and nothing else, so no dead node can be in one, and its
inputs are its interface: one that is not used stays a port.  What is left to remove are elements
that are computed and then cut away.
"""

from __future__ import annotations

from orion_ane.ir import Graph, Node
from orion_ane.ops.shape import Concat, Pad, Slice
from orion_ane.passes.rewrite import rewrite


def merge_slices(node: Node) -> Node | None:
    """A slice of a slice -> one slice."""
    match node:
        case Node(op=Slice() as outer, args=(Node(op=Slice() as inner, args=(x,)),)):
            return _cut(x, outer, inner.begin)
    return None


def read_inside(node: Node) -> Node | None:
    """A slice of a pad that takes no padding -> a slice of what was padded."""
    match node:
        case Node(op=Slice() as cut, args=(Node(op=Pad() as pad, args=(x,)),)):
            ends = tuple(b + n for b, n in zip(pad.before, x.type.shape, strict=True))
            if _within(cut, pad.before, ends):
                return _cut(x, cut, tuple(-b for b in pad.before))
    return None


def read_part(node: Node) -> Node | None:
    """A slice of a concat that takes from one operand only -> a slice of that operand."""
    match node:
        case Node(op=Slice() as cut, args=(Node(op=Concat(axis=at), args=parts),)):
            axis = at % node.type.rank
            start = 0
            for part in parts:
                end = start + part.type.shape[axis]
                if start <= cut.begin[axis] and cut.end[axis] <= end:
                    return _cut(part, cut, tuple(-start * (i == axis) for i in range(len(cut.end))))
                start = end
    return None


def _within(cut: Slice, begin: tuple[int, ...], end: tuple[int, ...]) -> bool:
    bounds = zip(cut.begin, begin, cut.end, end, strict=True)
    return all(b >= first and e <= last for b, first, e, last in bounds)


def _cut(x: Node, cut: Slice, by: tuple[int, ...]) -> Node:
    """The slice moved `by` so much on each axis."""
    begin = tuple(b + d for b, d in zip(cut.begin, by, strict=True))
    end = tuple(e + d for e, d in zip(cut.end, by, strict=True))
    return Node(Slice(begin, end), (x,))


def dce(graph: Graph) -> Graph:
    """The graph without elements that are made only to be cut away."""
    return rewrite(graph, merge_slices, read_inside, read_part)
