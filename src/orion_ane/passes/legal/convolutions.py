"""Convolutions as the device takes them: without a bias (ANE013), over two axes (ANE143)."""

from __future__ import annotations

from dataclasses import replace

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops.foreign.conv import Conv, convolution
from orion_ane.passes.legal.shaped import shaped
from orion_ane.passes.rewrite import rewrite


def part_bias(node: Node) -> Node | None:
    """conv(x, w, bias) -> conv(x, w) + bias."""
    match node:
        case Node(op=Conv(has_bias=True) as op, args=(x, w, bias)):
            ones = (1,) * (node.type.rank - 2)
            y = convolution(replace(op, has_bias=False), x, w)
            return y + shaped(bias, (1, *bias.type.shape, *ones))
    return None


def widen(node: Node) -> Node | None:
    """A convolution along one axis -> along two, of which the first has size one."""
    match node:
        case Node(op=Conv() as op, args=(x, w, *bias)) if x.type.rank == 3:
            plane = replace(
                op,
                strides=(1, *op.strides),
                pad=(0, 0, *op.pad),
                dilations=(1, *op.dilations),
            )
            y = convolution(plane, *(shaped(v, _with_row(v)) for v in (x, w)), *bias)
            return shaped(y, node.type.shape)
    return None


def _with_row(node: Node) -> tuple[int, ...]:
    outer, inner, size = node.type.shape
    return outer, inner, 1, size


def convolutions(graph: Graph, target: Target) -> Graph:
    """The graph whose convolutions have no bias and two spatial axes, where that is demanded."""
    demanded = {"ANE013": part_bias, "ANE143": widen}
    rules = [rule for code, rule in demanded.items() if code in target.limits]
    return rewrite(graph, *rules) if rules else graph
