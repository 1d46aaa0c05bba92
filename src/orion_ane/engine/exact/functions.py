"""What each op computes by a chip's rules, on fp16 values in fp32 arrays.

What has a rule of its own is here; everything else is computed in fp32 and settled: rounded
once, ties away, NaN as +0.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from orion_ane.ane.activation import activation_table
from orion_ane.ane.numerics import Numerics
from orion_ane.engine.exact.values import clamping, entered, flushing, kernels, settling
from orion_ane.engine.functions import ROUNDS_NOTHING, Function, function_of
from orion_ane.ir.node import Node, Op
from orion_ane.ops.arithmetic import Add, Binary, Mul, Pow, RealDiv, Sub
from orion_ane.ops.curve import Curve, Sigmoid, Tanh
from orion_ane.ops.foreign.activation import Softplus
from orion_ane.ops.foreign.gates import SIGMOID as BY_SIGMOID
from orion_ane.ops.foreign.gates import Gelu, Silu
from orion_ane.ops.foreign.slices import SliceBySize, StridedSlice
from orion_ane.ops.foreign.unary import Log, Round, Square
from orion_ane.ops.leaf import input_
from orion_ane.ops.reduction import ReduceMean, ReduceSum, Softmax
from orion_ane.ops.shape import Cast, Slice
from orion_ane.types import Array, DType, TensorType

LOG_OF_ZERO = np.array(-45440, np.float32)
STEPS = 2.0**32  # of an exponential
SOFTPLUS_END = np.array(11.09, np.float32)  # from here on the native one gives 0

_ZERO = np.array(0, np.float32)
_HALF = np.array(0.5, np.float32)
_LOWEST = np.array(np.finfo(np.float32).min)


def exact_function(node: Node, rules: Numerics) -> Function:
    """The function that computes a node, but a product, from operands that are never NaN.

    Its results are of the node's type: nothing has to be rounded after it.
    """
    types = (node.type, *(arg.type for arg in node.args))
    if all(of.dtype is not DType.FP16 for of in types):
        return function_of(node)  # fp32 and whole numbers: no rule is known
    is_flushed = rules.subnormals.value == "flushed" and isinstance(node.op, Binary | Curve | Pow)
    if isinstance(node.op, Curve | Pow) and not isinstance(node.op, ROUNDS_NOTHING):
        return _by_table(curve_table(node.op, is_flushed=is_flushed))
    function = _computed(node)
    if is_flushed:
        function = flushing(function)
    return _clamped(node, function, rules)


@lru_cache(maxsize=256)
def curve_table(op: Op, *, is_flushed: bool = False) -> Array:
    """What a curve makes of each of the 65,536 fp16 bit patterns, in their order, as fp32.

    So a value does not depend on where in a vector of numpy's loops it is computed.
    """
    x = entered(np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32))
    if isinstance(op, Sigmoid | Tanh | Gelu | Silu) and getattr(op, "mode", "") != BY_SIGMOID:
        function: Function = activation_table(op.name)
    else:
        function = _computed(Node(op, (input_("x", TensorType(DType.FP16, x.shape)),)))
    with np.errstate(all="ignore"):
        y = (flushing(function) if is_flushed else function)(x)
    return y.astype(np.float32)


def _computed(node: Node) -> Function:
    match node.op:
        case Add() | Sub() | Mul() | RealDiv() | Square() if node.type.dtype is DType.FP16:
            return _elementwise(node)
        case ReduceSum(axes=axes) | ReduceMean(axes=axes) if node.type.dtype is DType.FP16:
            return _total(node, axes)
    function = _with_its_own_infinities(node)
    if node.type.dtype is not DType.FP16 or isinstance(node.op, ROUNDS_NOTHING):
        return function
    return settling(function)


def _elementwise(node: Node) -> Function:
    from orion_ane.engine.macs import arithmetic, elementwise

    shapes = [arg.type.shape for arg in node.args]
    if isinstance(node.op, Square):
        square = elementwise.prepared(arithmetic.multiply, *shapes, *shapes)
        return lambda x: square(x, x)
    made: dict[type[Op], Any] = {
        Add: arithmetic.add,
        Sub: arithmetic.subtract,
        Mul: arithmetic.multiply,
        RealDiv: kernels().divide,
    }
    return elementwise.prepared(made[type(node.op)], *shapes)


def _by_table(table: Array) -> Function:
    look_up = kernels().look_up

    def looked_up(x: Array) -> Array:
        y = np.empty(x.shape, np.float32)
        look_up(x.ravel(), table, y.ravel())
        return y

    return looked_up


def _total(node: Node, axes: tuple[int, ...]) -> Function:
    """A sum or a mean: exact, in fp64, then rounded once."""
    total, shape, summed = kernels().total, node.type.shape, node.args[0].type.shape
    divisor = float(prod(summed[i] for i in axes)) if isinstance(node.op, ReduceMean) else 1.0
    gone = {axis % len(summed) for axis in axes}
    kept, last = [i for i in range(len(summed)) if i not in gone], max(gone)
    is_run = all(summed[i] == 1 for i in kept if min(gone) < i < last)
    inner = prod(summed[last + 1 :]) if is_run else 1

    def totalled(x: Array) -> Array:
        y = np.empty(shape, np.float32)
        row = x.ravel() if is_run else x.transpose(*kept, *gone).ravel()
        total(row, y.ravel(), inner, divisor)
        return y

    return totalled


def _with_its_own_infinities(node: Node) -> Function:
    """What the op computes in fp32, with the values that are reported of a device."""
    function = function_of(node)
    match node.op:
        case Cast() if node.args[0].type.dtype.is_float:
            return lambda x: entered(function(x))
        case Softmax(axis=axis):
            return _softmax(axis)
        case Log():
            return lambda x: _log(function(x))
        case Softplus():
            return lambda x: np.where(x >= SOFTPLUS_END, _ZERO, function(x))
        case Round():
            return _round
    return function


def _softmax(axis: int) -> Function:
    def softmax(x: Array) -> Array:
        top = np.maximum(x.max(axis, keepdims=True), _LOWEST)  # a row of nothing but -inf: zeros
        below = np.subtract(x, top, dtype=np.float64)
        # Whole steps, so that the order of the sum does not show, nor how many are masked.
        e: Array = np.rint(np.exp(np.where(np.isnan(below), 0, below)) * STEPS)  # NaN: inf - inf
        return np.divide(e, np.maximum(e.sum(axis, keepdims=True), STEPS))

    return softmax


def _log(y: Array) -> Array:
    """Of 0 a finite number, of infinity 0."""
    return np.where(np.isneginf(y), LOG_OF_ZERO, np.where(np.isposinf(y), _ZERO, y))


def _round(x: Array) -> Array:
    """Ties away; and from 1024 to 2048 by one too far (#116): a half is added in fp16."""
    size = np.abs(x)
    whole = np.floor(size)
    whole += (size - whole >= _HALF) | ((size >= 1024) & (size < 2048))
    return np.copysign(whole, x)


def _clamped(node: Node, function: Function, rules: Numerics) -> Function:
    """Slices of the last axis that do not begin at 0 pass a narrow format on some chips."""
    limit: Any = rules.slice_limit.value
    if limit is None or node.type.dtype is not DType.FP16 or not node.type.rank:
        return function
    match node.op:
        case Slice(begin=begin) | StridedSlice(begin=begin) if begin[-1] != 0:
            return clamping(function, limit)
        case SliceBySize():
            clamped = clamping(function, limit)
            return lambda x, begin: clamped(x, begin) if begin[-1] != 0 else function(x, begin)
    return function
