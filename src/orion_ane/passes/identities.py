"""What changes nothing goes: x+0, a transpose of a transpose, a reshape to the same shape."""

from __future__ import annotations

from orion_ane.ir import Graph, Node
from orion_ane.ops import Const
from orion_ane.ops.arithmetic import Add, Mul, RealDiv, Sub
from orion_ane.ops.shape import Concat, Identity, Pad, Reshape, Slice, Transpose
from orion_ane.passes.rewrite import rewrite


def drop_neutral(node: Node) -> Node | None:
    """x+0, x-0, x*1, x/1 -> x, where x is not stretched; 0+x and 1*x alike.

    Exact but for −0 + 0, which is +0: equal as a number.
    """
    if len(node.args) != 2:
        return None
    x, y = node.args
    match node.op:
        case Add():
            found = x if _is(y, 0) else y if _is(x, 0) else None
        case Mul():
            found = x if _is(y, 1) else y if _is(x, 1) else None
        case Sub():
            found = x if _is(y, 0) else None
        case RealDiv():
            found = x if _is(y, 1) else None
        case _:
            return None
    return found if found is not None and found.type == node.type else None


def _is(node: Node, number: int) -> bool:
    """Whether a node is a constant that holds nothing but `number`."""
    return isinstance(node.op, Const) and bool((node.op.value == number).all())


def drop_identity(node: Node) -> Node | None:
    """identity(x) -> x."""
    return node.args[0] if isinstance(node.op, Identity) else None


def merge_reshapes(node: Node) -> Node | None:
    """reshape(x) to x's own shape -> x, and reshape(reshape(x)) -> reshape(x)."""
    match node:
        case Node(op=Reshape(), args=(x,)) if x.type == node.type:
            return x
        case Node(op=Reshape(), args=(Node(op=Reshape(), args=(x,)),)):
            return Node(node.op, (x,))
    return None


def merge_transposes(node: Node) -> Node | None:
    """A transpose that moves no axis -> x, and transpose(transpose(x)) -> one transpose."""
    if not isinstance(node.op, Transpose):
        return None
    (x,) = node.args
    outer = _forward(node.op)
    if outer == tuple(range(len(outer))):
        return x
    if isinstance(x.op, Transpose):
        inner = _forward(x.op)
        return Node(Transpose(tuple(inner[axis] for axis in outer)), x.args)
    return None


def _forward(op: Transpose) -> tuple[int, ...]:
    """The permutation, its axes counted from the front."""
    return tuple(axis % len(op.perm) for axis in op.perm)


def drop_whole(node: Node) -> Node | None:
    """A slice of everything, a pad by nothing and a concat of one operand -> that operand."""
    match node:
        case Node(op=Slice() | Pad() | Concat(), args=(x,)) if x.type == node.type:
            return x
    return None


def identities(graph: Graph) -> Graph:
    """The graph without ops that hand on what they get."""
    return rewrite(graph, drop_identity, drop_neutral, merge_reshapes, merge_transposes, drop_whole)
