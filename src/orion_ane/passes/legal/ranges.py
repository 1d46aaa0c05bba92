"""Between which numbers the elements of a value lie, as far as the graph itself says so."""

from __future__ import annotations

from math import exp, inf, isnan, nextafter, sqrt
from typing import TypeAlias

from orion_ane.ir import Node
from orion_ane.ops.arithmetic import Add, Maximum, Mul, RealDiv, Select, Sub
from orion_ane.ops.curve import Clip, Exp, Neg, Relu, Sigmoid, Sqrt, Tanh
from orion_ane.ops.leaf import Const
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum, Softmax
from orion_ane.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from orion_ane.types import DType

Range: TypeAlias = tuple[float, float]
UNKNOWN: Range = (-inf, inf)
"""Nothing is known: a port, a weight, or what comes of them."""


class Ranges:
    """The range of each node, by interval arithmetic from constants, clips and bounded curves.

    NaN is left out: where an operand may be infinite, a result may be NaN beside its range.
    """

    def __init__(self) -> None:
        self._found: dict[Node, Range] = {}

    def of(self, root: Node) -> Range:
        """The range of a node, which is remembered; a loop, since graphs are deep."""
        stack = [root]
        while stack:
            node = stack[-1]
            waiting = [arg for arg in node.args if arg not in self._found]
            if node in self._found or not waiting:
                args = [self._found[arg] for arg in node.args]
                self._found.setdefault(node, _range(node, args))
                stack.pop()
            stack += waiting
        return self._found[root]


def _range(node: Node, args: list[Range]) -> Range:
    match node.op:
        case Const() as op:
            low, high = float(op.value.min()), float(op.value.max())
            return UNKNOWN if isnan(low) else (low, high)
        case Sigmoid() | Softmax():
            return 0.0, 1.0
        case Tanh():
            return -1.0, 1.0
        case Clip(lo=lo, hi=hi):
            return max(lo, args[0][0]), min(hi, args[0][1])
        case Relu():
            return max(args[0][0], 0.0), max(args[0][1], 0.0)
        case Exp():
            return _exp(args[0][0]), _exp(args[0][1])
        case Sqrt():
            return sqrt(max(args[0][0], 0.0)), sqrt(max(args[0][1], 0.0))
        case Neg():
            return -args[0][1], -args[0][0]
        case Maximum():
            return max(args[0][0], args[1][0]), max(args[0][1], args[1][1])
        case Add() | Sub() | Mul() | RealDiv():
            return _arithmetic(node, *args)
        case Select():
            return _union(args[1:])
        case Concat():
            return _union(args)
        case Pad():
            return _union([args[0], (0.0, 0.0)])
        case Reshape() | Transpose() | Slice() | Identity() | ReduceMax() | ReduceMean():
            return args[0]
        case Cast(to=to) if to.is_float and node.args[0].type.dtype is not DType.BOOL:
            return args[0]
        case ReduceSum():
            return _times(args[0], node.args[0].type.elements // node.type.elements)
        case Conv1x1():
            return _times(_product(*args), node.args[0].type.shape[1])
        case Matmul(tx=tx):
            return _times(_product(*args), node.args[0].type.shape[-2 if tx else -1])
    return UNKNOWN


def _arithmetic(node: Node, x: Range, y: Range) -> Range:
    match node.op:
        case Add():
            return _sum(x[0], y[0], -inf), _sum(x[1], y[1], inf)
        case Sub():
            return _sum(x[0], -y[1], -inf), _sum(x[1], -y[0], inf)
        case Mul():
            low, high = _product(x, y)
            return (max(low, 0.0), high) if node.args[0] is node.args[1] else (low, high)
    if is_scaled(node):
        return -1.0, 1.0
    if y[0] <= 0 <= y[1]:
        return UNKNOWN
    return _product(x, (1 / y[1], 1 / y[0]))


def is_scaled(node: Node) -> bool:
    """Whether this is x / max(largest |x|, …), so that no element is over one."""
    match node:
        case Node(op=RealDiv(), args=(x, Node(op=Maximum(), args=tops))):
            return any(_is_largest_of(top, x) for top in tops)
    return False


def _is_largest_of(top: Node, x: Node) -> bool:
    match top:
        case Node(op=ReduceMax(), args=(Node(op=Maximum(), args=(a, b)),)):
            return any(
                p is x and isinstance(q.op, Neg) and q.args[0] is x for p, q in ((a, b), (b, a))
            )
    return False


def _product(x: Range, y: Range) -> Range:
    ends = [0.0 if a == 0 or b == 0 else a * b for a in x for b in y]
    return min(ends), max(ends)


def _times(x: Range, count: int) -> Range:
    return x[0] * count if x[0] else 0.0, x[1] * count if x[1] else 0.0


def _sum(a: float, b: float, otherwise: float) -> float:
    total = a + b
    return otherwise if isnan(total) else total


def _union(args: list[Range]) -> Range:
    return min(low for low, _ in args), max(high for _, high in args)


def _exp(x: float) -> float:
    return inf if x > 700 else nextafter(exp(x), inf) if x > -700 else 0.0
