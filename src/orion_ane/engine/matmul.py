"""Products of two values: matmul, linear, conv, and conv1x1 with a weight that is an input."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from orion_ane.engine import steady
from orion_ane.engine.functions import Function
from orion_ane.engine.products import BLOCK_ROWS, SMALL_PRODUCT
from orion_ane.engine.threads import Threads
from orion_ane.engine.windows import windows
from orion_ane.ir.node import Node
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.linear import Matmul
from orion_ane.types import Array, TensorType

MAX_PARTS = 32  # of one product: enough for the threads there are to end together


def conv1x1_by_input(x: TensorType, w: TensorType, threads: Threads) -> Function:
    """out[o, s] = Σᵢ w[o, i] x[i, s], as a function of both."""
    n, inner, h, s = x.shape
    outer = w.shape[0]
    multiply = _dealt((n, outer, h * s), inner, threads)

    def product(x: Array, w: Array) -> Array:
        flat = w.reshape(1, outer, inner)
        return multiply(flat, x.reshape(n, inner, h * s)).reshape(n, outer, h, s)

    return product


def matmul(node: Node, op: Matmul, threads: Threads) -> Function:
    """x @ y over the last two axes, the others broadcast, as a function of both.

    Where y has size 1 on a batch axis of x (several query heads on one key head), that axis is
    folded into x's rows: one product reads y once.
    """
    x_type, y_type = (arg.type for arg in node.args)
    shape, rank = node.type.shape, node.type.rank
    (m, n), k = shape[-2:], x_type.shape[-2 if op.tx else -1]
    x_batch = (1,) * (rank - x_type.rank) + x_type.shape[:-2]
    y_batch = (1,) * (rank - y_type.rank) + y_type.shape[:-2]
    folded = [i for i in range(rank - 2) if x_batch[i] > 1 and y_batch[i] == 1]
    kept = [i for i in range(rank - 2) if i not in folded]
    if not folded:
        return _transposing(op, _dealt(shape, k, threads))
    order = (*kept, *folded, rank - 2, rank - 1)
    back = tuple(order.index(i) for i in range(rank))
    rows = m * prod(x_batch[i] for i in folded)
    unfolded = (*x_batch, m, k)
    x_shape = (*(x_batch[i] for i in kept), rows, k)
    y_shape = (*(y_batch[i] for i in kept), *y_type.shape[-2:])
    result = tuple(shape[i] for i in order)
    multiply = _dealt((*(shape[i] for i in kept), rows, n), k, threads)

    def product(x: Array, y: Array) -> Array:
        x = (x.swapaxes(-1, -2) if op.tx else x).reshape(unfolded).transpose(order)
        y = y.reshape(y_shape)
        y = y.swapaxes(-1, -2) if op.ty else y
        return multiply(x.reshape(x_shape), y).reshape(result).transpose(back)

    return product


def linear(x: Array, w: Array, bias: Array) -> Array:
    """X wᵀ + bias, row by row of x."""
    y = steady.multiply(x.reshape(-1, x.shape[-1]), w.T, columns=False)
    return np.asarray(y.reshape(*x.shape[:-1], -1) + bias)


def convolution(node: Node, op: Conv) -> Function:
    """A convolution of x, w and maybe a bias."""
    count, outer, *places = node.type.shape

    def product(x: Array, w: Array, *bias: Array) -> Array:
        seen = windows(op, x, w.shape[2:])
        sides = w.reshape(op.groups, outer // op.groups, -1)
        parts = [
            steady.multiply(left, right.T, rows=False)
            for left, right in zip(sides, seen, strict=True)
        ]
        y = np.moveaxis(np.concatenate(parts).reshape(outer, count, *places), 0, 1)
        return y + bias[0].reshape(outer, *(1,) * len(places)) if bias else y

    return product


def _transposing(op: Matmul, multiply: Function) -> Function:
    def product(x: Array, y: Array) -> Array:
        return multiply(x.swapaxes(-1, -2) if op.tx else x, y.swapaxes(-1, -2) if op.ty else y)

    return product


def _dealt(shape: tuple[int, ...], k: int, threads: Threads) -> Function:
    """x @ y with a result of that shape, cut along one axis where it is large."""
    if prod(shape) * k <= SMALL_PRODUCT:

        def whole(x: Array, y: Array) -> Array:
            out = np.empty(shape, x.dtype)
            steady.each(x, y, out)
            return out

        return whole
    rank = len(shape)
    batch = [i for i in range(rank - 2) if shape[i] > 1]
    axis = batch[0] if batch else max(rank - 2, rank - 1, key=lambda i: shape[i])
    size = shape[axis]
    parts = min(size, MAX_PARTS) if batch else min(2 * -(-size // (2 * BLOCK_ROWS)), size)
    cuts = [slice(part * size // parts, (part + 1) * size // parts) for part in range(parts)]

    def multiply(x: Array, y: Array) -> Array:
        out = np.empty(shape, x.dtype)

        def part(i: int) -> None:
            with np.errstate(all="ignore"):  # a thread has its own
                steady.each(
                    _cut(x, axis - rank, cuts[i], own=axis != rank - 1),
                    _cut(y, axis - rank, cuts[i], own=axis != rank - 2),
                    _cut(out, axis - rank, cuts[i], own=True),
                )

        threads.each(part, range(parts))
        return out

    return multiply


def _cut(array: Array, axis: int, cut: slice, *, own: bool) -> Array:
    """The part of an operand that a part of the result needs; all of it where it broadcasts."""
    if not own or -axis > array.ndim or array.shape[axis] == 1:
        return array
    index: tuple[Any, ...] = (..., cut, *(slice(None),) * (-axis - 1))
    return array[index]
