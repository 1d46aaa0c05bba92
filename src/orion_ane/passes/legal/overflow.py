"""Guards where fp16 may overflow on the device: norms, scores, softmax (ANE171; cases N07, N15).

A product or a partial sum from 2¹⁵ on is infinite there, and fp16 itself ends at 65,504.  What is
in range keeps its value but for rounding:

- a norm, x / sqrt(mean(x²) + eps) in any spelling, whose squares may overflow: x is divided by its
  largest magnitude first, and eps by that squared.  Nothing known of x is reason enough.
- a product that is scaled down afterwards: an operand is scaled before, unless the ranges prove
  that it is in range.
- a softmax of what may be infinite, or is known to pass 2¹⁵: it is clipped to ±32,752, so that a
  row of −inf, as a mask may leave it, is no NaN.  Nothing known is no reason.
"""

from __future__ import annotations

from math import isfinite, prod

import numpy as np

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.nn.blocks import normalise
from orion_ane.ops import clip, const
from orion_ane.ops.arithmetic import Add, Mul, Pow, RealDiv, Select
from orion_ane.ops.curve import Rsqrt, Sqrt
from orion_ane.ops.foreign.unary import Square
from orion_ane.ops.leaf import Const
from orion_ane.ops.linear import Matmul
from orion_ane.ops.reduction import ReduceMean, ReduceSum, Softmax
from orion_ane.passes.legal.ranges import Ranges
from orion_ane.passes.rewrite import Rule, rewrite
from orion_ane.types import DType

LARGEST = 32752.0
"""The largest fp16 below 2¹⁵."""
FP16_ROUNDING = 2.0**-10
"""By how much a constant 1 / n may be off and still be meant."""


def overflow(graph: Graph, target: Target) -> Graph:
    """The graph in which norms, scaled products and softmax do not overflow in fp16."""
    if "ANE171" not in target.limits:
        return graph
    known = Ranges()
    return rewrite(graph, scale_norm(known), scale_before(known), hold_scores(known))


def scale_norm(known: Ranges) -> Rule:
    """A rule: a norm whose squares or their sum may overflow -> one that scales first."""

    def scale(node: Node) -> Node | None:
        known.of(node)  # of each node in turn, so that no walk is deep
        if node.type.dtype is not DType.FP16:
            return None
        for x, inverse in _factors(node):
            mean, eps = inverse
            axes = _axes_of_mean_square(mean, x)
            if axes is None or _sum_of_squares(known, x, axes) <= LARGEST:
                continue
            y = normalise(x, eps, axes)
            return y if y.type == node.type else None
        return None

    return scale


def _sum_of_squares(known: Ranges, x: Node, axes: tuple[int, ...]) -> float:
    """The most that the squares over `axes` can come to; a mean passes through their sum."""
    low, high = known.of(x)
    return max(low * low, high * high) * prod(x.type.shape[axis] for axis in axes)


def _factors(node: Node) -> list[tuple[Node, tuple[Node, float]]]:
    """What a node multiplies by the inverse root of m + eps: pairs of x and (m, eps)."""
    match node:
        case Node(op=Mul(), args=(a, b)):
            pairs = [(a, _inside(b, -0.5)), (b, _inside(a, -0.5))]
        case Node(op=RealDiv(), args=(a, b)):
            pairs = [(a, _inside(b, 0.5))]
        case _:
            return []
    return [(x, inside) for x, inside in pairs if inside is not None]


def _inside(root: Node, power: float) -> tuple[Node, float] | None:
    """m and eps of (m + eps) to the power 1/2 or -1/2, as it may be spelled."""
    match root:
        case Node(op=Rsqrt(eps=eps), args=(m,)) if power < 0:
            inner, more = _plus_constant(m)
            return inner, eps + more
        case Node(op=Pow(p=p), args=(m,)) if p == power:
            return _plus_constant(m)
        case Node(op=Sqrt(), args=(m,)) if power > 0:
            return _plus_constant(m)
    return None


def _plus_constant(m: Node) -> tuple[Node, float]:
    match m:
        case Node(op=Add(), args=(a, Node(op=Const() as c))) if c.of.elements == 1:
            return a, float(c.value.item())
        case Node(op=Add(), args=(Node(op=Const() as c), a)) if c.of.elements == 1:
            return a, float(c.value.item())
    return m, 0.0


def _axes_of_mean_square(mean: Node, x: Node) -> tuple[int, ...] | None:
    """The axes over which `mean` is that of x², or None where it is not."""
    match mean:
        case Node(op=ReduceMean(axes=axes), args=(square,)) if _is_square(square, x):
            return axes
        case Node(op=Mul(), args=(Node(op=ReduceSum(axes=axes), args=(square,)), factor)):
            count = prod(x.type.shape[axis] for axis in axes) if _is_square(square, x) else 0
            if isinstance(factor.op, Const) and factor.type.elements == 1 and count:
                share = float(factor.op.value.item()) * count
                return axes if abs(share - 1) < FP16_ROUNDING else None
    return None


def _is_square(square: Node, x: Node) -> bool:
    match square:
        case Node(op=Mul(), args=(a, b)):
            return a is x and b is x
        case Node(op=Pow(p=p), args=(a,)):
            return p == 2 and a is x
        case Node(op=Square(), args=(a,)):
            return a is x
    return False


def scale_before(known: Ranges) -> Rule:
    """A rule: c · (x y) with |c| < 1 -> (c · x) y, where the product may overflow."""

    def scale(node: Node) -> Node | None:
        found = _scaled_product(node)
        if found is None or node.type.dtype is not DType.FP16:
            return None
        product, factor = found
        low, high = known.of(product)
        if not 0 < abs(factor) < 1 or max(-low, high) <= LARGEST:
            return None
        x, y = product.args
        scale = const(factor, DType.FP16)
        first = x.type.elements <= y.type.elements
        return Node(product.op, (x * scale, y) if first else (x, y * scale))

    return scale


def _scaled_product(node: Node) -> tuple[Node, float] | None:
    """A matmul, and the scalar by which it is multiplied or divided."""
    match node:
        case Node(op=Mul(), args=(Node(op=Matmul()) as product, Node(op=Const() as c))):
            is_divided = False
        case Node(op=Mul(), args=(Node(op=Const() as c), Node(op=Matmul()) as product)):
            is_divided = False
        case Node(op=RealDiv(), args=(Node(op=Matmul()) as product, Node(op=Const() as c))):
            is_divided = True
        case _:
            return None
    if c.of.rank or (is_divided and not c.value.item()):
        return None
    return product, 1 / c.value.item() if is_divided else float(c.value.item())


def hold_scores(known: Ranges) -> Rule:
    """A rule: softmax of what is known to pass the range, or of -inf -> softmax of a clip."""

    def hold(node: Node) -> Node | None:
        match node:
            case Node(op=Softmax() as op, args=(x,)) if node.type.dtype is DType.FP16:
                reach = max(abs(end) for end in known.of(x))
                if (isfinite(reach) and reach > LARGEST) or _is_hidden_by_infinity(x):
                    return Node(op, (clip(x, -LARGEST, LARGEST),))
        return None

    return hold


def _is_hidden_by_infinity(x: Node) -> bool:
    """Whether a constant with -inf is added to the scores, or chosen among them."""
    return isinstance(x.op, Add | Select) and any(
        isinstance(arg.op, Const)
        and arg.type.dtype.is_float
        and bool(np.isneginf(arg.op.value).any())
        for arg in x.args
    )
