"""Curves that devices refuse or get wrong, in others (ANE105, ANE183, ANE189)."""

from __future__ import annotations

from orion_ane.ane.limits.flow import HALF, PATCH
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import const, exp, maximum, relu
from orion_ane.ops.foreign.activation import Softplus
from orion_ane.ops.foreign.unary import Inverse, Log, Square
from orion_ane.passes.legal.shaped import shifted_power
from orion_ane.passes.rewrite import rewrite


def spell_inverse(node: Node) -> Node | None:
    """1 / (x + eps) -> (x + eps) to the power -1, where eps is rounded to x's type."""
    match node:
        case Node(op=Inverse(eps=eps), args=(x,)):
            return shifted_power(x, eps, -1.0)
    return None


def spell_softplus(node: Node) -> Node | None:
    """log(1 + exp x) -> max(x, 0) + log(1 + exp(-|x|)), in which nothing is large.

    In fp16 the second part is lost where it is under 2⁻¹¹.
    """
    match node:
        case Node(op=Softplus(), args=(x,)):
            rest = exp(-maximum(x, -x)) + const(1, x.type.dtype)
            return relu(x) + Node(Log(0.0), (rest,))
    return None


def spell_square(node: Node) -> Node | None:
    """square(x) -> x · x, on a width that leaves more than half a patch."""
    match node:
        case Node(op=Square(), args=(x,)) if x.type.rank and x.type.shape[-1] % PATCH > HALF:
            return x * x
    return None


def curves(graph: Graph, target: Target) -> Graph:
    """The graph without the curves that the target refuses or gets wrong."""
    demanded = {"ANE105": spell_inverse, "ANE183": spell_softplus, "ANE189": spell_square}
    rules = [rule for code, rule in demanded.items() if code in target.limits]
    return rewrite(graph, *rules) if rules else graph
