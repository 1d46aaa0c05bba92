"""Roots as powers, where the device refuses them (ANE103, ANE196)."""

from __future__ import annotations

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import power
from orion_ane.ops.curve import Rsqrt, Sqrt
from orion_ane.ops.reduction import Reduction
from orion_ane.passes.legal.shaped import shifted_power
from orion_ane.passes.rewrite import rewrite


def spell_rsqrt(node: Node) -> Node | None:
    """rsqrt(x, eps) -> (x + eps) to the power -1/2, where eps is rounded to x's type."""
    match node:
        case Node(op=Rsqrt(eps=eps), args=(x,)):
            return shifted_power(x, eps, -0.5)
    return None


def spell_root_of_sum(node: Node) -> Node | None:
    """The square root of a reduction -> its power 1/2."""
    match node:
        case Node(op=Sqrt(), args=(Node(op=Reduction()) as x,)):
            return power(x, 0.5)
    return None


def roots(graph: Graph, target: Target) -> Graph:
    """The graph without the roots that the target refuses."""
    demanded = {"ANE103": spell_rsqrt, "ANE196": spell_root_of_sum}
    rules = [rule for code, rule in demanded.items() if code in target.limits]
    return rewrite(graph, *rules) if rules else graph
