"""Linear layers as 1x1 convolutions over channels, which the device is made for (ANE017)."""

from __future__ import annotations

from math import prod

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, Weight, conv1x1, matmul, transpose
from orion_ane.ops.curve import Curve
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.shape import Reshape, Transpose
from orion_ane.passes.identities import identities
from orion_ane.passes.legal.shaped import shaped
from orion_ane.passes.rewrite import rewrite


def by_points(node: Node) -> Node | None:
    """A linear layer -> a conv1x1 between transposes; with a computed matrix -> a matmul."""
    if not isinstance(node.op, Linear) or not node.type.dtype.is_float:
        return None
    x, w, bias = node.args
    outer, inner = w.type.shape
    count = prod(x.type.shape[:-1])
    rows = shaped(x, (count, inner))
    if not isinstance(w.op, Weight | Const):
        return shaped(_plus(matmul(rows, w, ty=True), bias, (outer,)), node.type.shape)
    columns = shaped(transpose(rows, (1, 0)), (1, inner, 1, count))
    y = _plus(conv1x1(columns, shaped(w, (outer, inner, 1, 1))), bias, (1, outer, 1, 1))
    return shaped(transpose(shaped(y, (outer, count)), (1, 0)), node.type.shape)


def _plus(y: Node, bias: Node, shape: tuple[int, ...]) -> Node:
    """`y` plus a bias that is not known to be nothing."""
    if isinstance(bias.op, Const) and not bias.op.value.any():
        return y
    return y + shaped(bias, shape)


def curve_first(node: Node) -> Node | None:
    """A curve of what was moved -> the same move of the curve, so that moves meet."""
    match node:
        case Node(op=Curve(), args=(Node(op=Reshape() | Transpose() as move, args=(x,)),)):
            return Node(move, (Node(node.op, (x,)),))
    return None


def linear(graph: Graph, target: Target) -> Graph:
    """The graph whose linear layers are convolutions, with no transpose that the next undoes."""
    if "ANE017" not in target.limits:
        return graph
    after = rewrite(graph, by_points)
    return graph if after is graph else identities(rewrite(after, curve_first))
