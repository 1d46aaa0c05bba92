"""What each op computes, as a function of arrays chosen once, when a graph is lowered.

A value that the graph calls fp16 or fp32 is an fp32 array here; others are of their own type.
The elementwise functions make the very calls that `Op.eval` makes, or such as give the same
bits, without what a call costs there (`np.errstate`, `np.where`, `np.mean`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import itemgetter, methodcaller
from typing import Any, TypeAlias

import numpy as np

from orion_ane.ir.node import Node, Op
from orion_ane.ops.arithmetic import Add, GreaterEqual, Maximum, Mul, RealDiv, Select, Sub
from orion_ane.ops.curve import Clip, Exp, Neg, Relu, Rsqrt, Sigmoid, Sqrt, Tanh
from orion_ane.ops.leaf import Leaf
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum, Softmax
from orion_ane.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from orion_ane.types import Array, DType

Function: TypeAlias = Callable[..., Array]

ROUNDS_NOTHING: tuple[type[Op], ...] = (
    *(Leaf, Identity, Reshape, Transpose, Slice, Pad, Concat),
    *(Select, Maximum, Relu, Clip, Neg, ReduceMax),
)
"""Ops whose results are values of their operands, negatives, or parameters of that type."""

_UFUNCS: dict[type[Op], Function] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    RealDiv: np.divide,
    Maximum: np.maximum,
    GreaterEqual: np.greater_equal,
    Select: np.where,
    Tanh: np.tanh,
    Exp: np.exp,
    Sqrt: np.sqrt,
    Neg: np.negative,
}

_LOWEST = np.array(np.finfo(np.float32).min)
_ONE, _ZERO = np.array(1, np.float32), np.array(0, np.float32)


def storage(dtype: DType) -> np.dtype[Any]:
    """The numpy type in which a value of this type is held between steps."""
    return np.dtype(np.float32) if dtype is DType.FP16 else dtype.numpy


def function_of(node: Node) -> Function:
    """The function that computes `node` from its operands, in order.

    A result may be a view of an operand; it is not rounded to the node's type.
    """
    op = node.op
    if type(op) in _UFUNCS:
        return _UFUNCS[type(op)]
    match op:
        case Reshape(shape=shape):
            return methodcaller("reshape", shape)
        case Transpose(perm=perm):
            return methodcaller("transpose", perm)
        case Slice(begin=begin, end=end):
            return itemgetter(tuple(map(slice, begin, end)))
        case Cast(to=to) if to.is_float or not node.args[0].type.dtype.is_float:
            return methodcaller("astype", storage(to))
        case Concat(axis=axis):
            return lambda *parts: np.concatenate(parts, axis=axis)
        case Relu():
            return lambda x: np.maximum(x, _ZERO)
        case Sigmoid():
            return _sigmoid
        case Rsqrt(eps=eps):
            return _rsqrt(eps)
        case Softmax(axis=axis):
            return _softmax(axis)
        case ReduceSum(axes=axes):
            dtype = storage(node.type.dtype)
            return lambda x: np.add.reduce(x, axes, dtype, keepdims=True)
        case ReduceMean(axes=axes):
            return _mean(axes, prod(node.args[0].type.shape[axis] for axis in axes))
        case ReduceMax(axes=axes):
            return lambda x: np.maximum.reduce(x, axes, keepdims=True)
        case Pad():
            return _pad(op, node)
    return _by_meaning(op, storage(node.type.dtype))


def _by_meaning(op: Op, dtype: np.dtype[Any]) -> Function:
    return lambda *args: np.array(op.eval(args), dtype)  # a copy: eval may hand an operand back


def _sigmoid(x: Array) -> Array:
    e: Array = np.negative(np.abs(x))
    e = np.exp(e)
    top = np.exp(np.minimum(x, _ZERO))  # 1 from 0 on, else e: the same bits as a choice of them
    return np.divide(top, np.add(e, _ONE))


def _rsqrt(eps: float) -> Function:
    epsilon = np.array(eps, np.float32)
    return lambda x: np.divide(_ONE, np.sqrt(np.add(x, epsilon)))


def _softmax(axis: int) -> Function:
    largest, total = np.maximum.reduce, np.add.reduce

    def softmax(x: Array) -> Array:
        # A row of nothing but -inf is shifted by a finite value and divided by 1: zeros.  In any
        # other the largest element's e is 1, so that the sum is no less.
        top = np.maximum(largest(x, axis, keepdims=True), _LOWEST)
        e: Array = np.exp(np.subtract(x, top))
        return np.divide(e, np.maximum(total(e, axis, keepdims=True), _ONE))

    return softmax


def _mean(axes: tuple[int, ...], count: int) -> Function:
    n = np.array(count, np.float32)
    return lambda x: np.divide(np.add.reduce(x, axes, keepdims=True), n)


def _pad(op: Pad, node: Node) -> Function:
    (x_type,) = (arg.type for arg in node.args)
    inside = tuple(slice(b, b + n) for b, n in zip(op.before, x_type.shape, strict=True))
    shape, dtype = node.type.shape, storage(node.type.dtype)

    def pad(x: Array) -> Array:
        grown = np.zeros(shape, dtype)
        grown[inside] = x
        return grown

    return pad
