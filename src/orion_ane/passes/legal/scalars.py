"""A scalar operand second, where the device refuses it as the first (ANE140)."""

from __future__ import annotations

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, power
from orion_ane.ops.arithmetic import Add, Maximum, Mul, RealDiv, Sub
from orion_ane.passes.rewrite import rewrite


def tensor_first(node: Node) -> Node | None:
    """c + x -> x + c, and alike c · x and max(c, x); c - x -> -x + c; c / x -> x⁻¹ · c.

    Exact but for the quotient, which is rounded twice where c is not 1, and infinite where 1 / x
    is.
    """
    if len(node.args) != 2:
        return None
    c, x = node.args
    if not _is_scalar(c) or _is_scalar(x):
        return None
    match node.op:
        case Add() | Mul() | Maximum():
            return Node(node.op, (x, c))
        case Sub() if x.type.dtype.is_float:
            return -x + c
        case RealDiv():
            inverse = power(x, -1.0)
            return (
                inverse if c.op.eval(()).item() == 1 and inverse.type == node.type else inverse * c
            )
    return None


def _is_scalar(node: Node) -> bool:
    return isinstance(node.op, Const) and node.type.elements == 1


def scalars(graph: Graph, target: Target) -> Graph:
    """The graph in which no scalar is the first operand of two."""
    return rewrite(graph, tensor_first) if "ANE140" in target.limits else graph
