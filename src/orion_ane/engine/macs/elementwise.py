"""Sums, differences and products of fp16 numbers, element by element, as the ANE rounds them.

The same results as `ane.rounding`, some twenty times as fast.  Importing this
module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orion_ane.engine.half import narrow, read_only, widen
from orion_ane.engine.macs import kernels
from orion_ane.types import Array

Kernel = Callable[[Array, Array, Array], None]


def add(x: Array, y: Array) -> Array:
    """x + y: exact, rounded once, ties away from zero, and no -0.

    fp16, or fp32 that holds fp16 values; the result is of x's type.
    """
    return _each(kernels.add, x, y)


def subtract(x: Array, y: Array) -> Array:
    """x - y: as `add`."""
    return _each(kernels.subtract, x, y)


def multiply(x: Array, y: Array) -> Array:
    """x · y: rounded to 11 bits, then below 2^-14 to the subnormal grid, both ties away."""
    return _each(kernels.multiply, x, y)


def _each(kernel: Kernel, x: Array, y: Array) -> Array:
    left, right = _wide(x), _wide(y)
    if x.shape != y.shape:
        shape = np.broadcast_shapes(x.shape, y.shape)
        left, right = np.broadcast_to(left, shape), np.broadcast_to(right, shape)
    z = np.empty(left.shape, np.float32)
    kernel(read_only(left).reshape(-1), read_only(right).reshape(-1), z.reshape(-1))
    return narrow(z) if x.dtype == np.float16 else z


def _wide(x: Array) -> Array:
    return widen(x) if x.dtype == np.float16 else x
