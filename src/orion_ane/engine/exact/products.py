"""Products by the product-sum: of constant weights, and of two operands that are computed.

A bias is added to the exact sum, before its one rounding: where a device adds it is not known.
"""

from __future__ import annotations

import numpy as np

from orion_ane.ane.numerics import Numerics, Overflow
from orion_ane.engine.functions import Function
from orion_ane.engine.half import narrow, widen
from orion_ane.engine.macs import products
from orion_ane.engine.macs.conv import ConvWeight, conv, conv_weight, rounded_sums
from orion_ane.engine.macs.products import Rows, exact_sums, product_sum, rows
from orion_ane.engine.threads import Threads
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.linear import Matmul
from orion_ane.types import Array, TensorType


def conv1x1(x: TensorType, weight: Array | None, rules: Numerics, threads: Threads) -> Function:
    """out[o, s] = Σᵢ w[o, i] x[i, s] as a function of x, and of w where that is not constant."""
    n, inner, h, s = x.shape
    overflow = rules.overflow.value

    def product(x: Array, left: Rows) -> Array:
        right = x.transpose(1, 0, 2, 3).reshape(inner, n * h * s)
        y = product_sum(left, right, overflow=overflow, threads=threads)
        y = y.reshape(-1, n, h, s)
        return y.reshape(1, -1, h, s) if n == 1 else np.ascontiguousarray(y.transpose(1, 0, 2, 3))

    if weight is None:
        return lambda x, w: product(x, rows(half(w).reshape(-1, inner)))
    known = rows(half(weight).reshape(-1, inner))
    return lambda x: product(x, known)


def linear(weight: Array | None, rules: Numerics, threads: Threads) -> Function:
    """x wᵀ + bias as a function of x and bias, or of x, w and bias where w is not constant."""
    overflow = rules.overflow.value

    def product(x: Array, left: Rows, bias: Array) -> Array:
        outer, inner = left.shape
        right = x.reshape(-1, inner).T
        y = _biased(left, right, bias, overflow, threads)
        return np.ascontiguousarray(y.T).reshape(*x.shape[:-1], outer)

    if weight is None:
        return lambda x, w, bias: product(x, rows(half(w)), bias)
    known = rows(half(weight))
    return lambda x, bias: product(x, known, bias)


def _biased(left: Rows, x: Array, bias: Array, overflow: Overflow, threads: Threads) -> Array:
    if not bias.any():
        return product_sum(left, x, overflow=overflow, threads=threads)
    sums = exact_sums(left, x, overflow=overflow, threads=threads)
    return widen(rounded_sums(sums, bias))


def matmul(op: Matmul, x: TensorType, y: TensorType, rules: Numerics, threads: Threads) -> Function:
    """x @ y over the last two axes, each matrix by the product-sum."""
    overflow = rules.overflow.value
    few = products.small(x.shape, y.shape, overflow=overflow, tx=op.tx, ty=op.ty)
    if few is not None:
        return few

    def product(x: Array, y: Array) -> Array:
        x = x.swapaxes(-1, -2) if op.tx else x
        y = y.swapaxes(-1, -2) if op.ty else y
        return widen(products.matmul(narrow(x), narrow(y), overflow=overflow, threads=threads))

    return product


def convolution(
    op: Conv, x: TensorType, w: TensorType, weight: Array | None, rules: Numerics, threads: Threads
) -> Function:
    """A convolution along one axis or two, as a function of x, w unless constant, and a bias."""
    walk = _Walk(op, x, w, rules, threads)
    if weight is None:
        return lambda x, w, *bias: walk(x, walk.prepared(w), *bias)
    known = walk.prepared(weight)
    return lambda x, *bias: walk(x, known, *bias)


class _Walk:
    """How a convolution is done on images, which lines are of one row."""

    def __init__(
        self, op: Conv, x: TensorType, w: TensorType, rules: Numerics, threads: Threads
    ) -> None:
        lines = x.rank == 3
        one, none = ((1,), (0, 0)) if lines else ((), ())
        self.strides, self.dilations = (*one, *op.strides), (*one, *op.dilations)
        self.pad, self.groups = (*none, *op.pad), op.groups
        self.image = (x.shape[0], x.shape[1], *one, *x.shape[2:])
        self.kernel = (*w.shape[:2], *one, *w.shape[2:])
        is_plain = self.kernel[2:] == (3, 3) and {*self.strides, *self.dilations} == {1}
        self.form = rules.conv_3x3.value if is_plain else "direct"
        self.overflow, self.threads, self.lines = rules.overflow.value, threads, lines

    def prepared(self, w: Array) -> list[ConvWeight]:
        parts = np.split(half(w).reshape(self.kernel), self.groups)
        return [conv_weight(np.ascontiguousarray(part), self.form) for part in parts]

    def __call__(self, x: Array, weights: list[ConvWeight], bias: Array | None = None) -> Array:
        images = np.split(narrow(x).reshape(self.image), self.groups, axis=1)
        biases = [None] * self.groups if bias is None else np.split(bias, self.groups)
        y = np.concatenate(
            [
                conv(
                    image,
                    weight,
                    bias=part,
                    overflow=self.overflow,
                    pad=(self.pad[0], self.pad[1], self.pad[2], self.pad[3]),
                    strides=(self.strides[0], self.strides[1]),
                    dilations=(self.dilations[0], self.dilations[1]),
                    threads=self.threads,
                )
                for image, weight, part in zip(images, weights, biases, strict=True)
            ],
            axis=1,
        )
        return widen(y[:, :, 0] if self.lines else y)


def half(w: Array) -> Array:
    """A weight as stored; its fp16 values, where it is held in fp32."""
    return w if w.dtype == np.float16 else narrow(w)
