"""Kernels of two operands, element by element: sums, differences and products of fp16 numbers.

Operands are flat fp32 arrays that hold fp16 values, and so is the result.  An operand that is
spread over the result is not laid out in its shape: see `each`.
"""

from __future__ import annotations

from functools import partial
from math import copysign, inf
from typing import Any

import numba
import numpy as np

from orion_ane.engine import jit, lanes
from orion_ane.engine.macs import kernels, vectors
from orion_ane.engine.macs.kernels import _away
from orion_ane.types import Array

HALF_CEILING, SMALLEST_NORMAL = 2.0**16, 2.0**-14  # of fp16 itself

compiled = partial(jit.compiled, sources=(lanes, vectors, kernels))


@numba.njit(inline="always")  # else the kernels that hand it an operation cannot be kept on disk
def each(operation: Any, x: Array, y: Array, z: Array, inner: Any) -> None:
    """Z = operation(x, y): each of y goes with `inner` of x in a row, and then with later ones."""
    if inner == 1:
        for first in range(0, z.shape[0], y.shape[0]):
            for i in range(y.shape[0]):
                z[first + i] = operation(x[first + i], y[i])
        return
    for line in range(z.shape[0] // inner):
        other = y[line % y.shape[0]]
        for i in range(line * inner, (line + 1) * inner):
            z[i] = operation(x[i], other)


@compiled(is_part=True)
def _counted(value: Any) -> Any:
    """An operand in fp64; NaN counts as +inf."""
    return np.float64(inf) if value != value else np.float64(value)  # noqa: PLR0124 - only NaN


@compiled(is_part=True)
def _settled(value: Any) -> Any:
    """A result; what is indeterminate is 0."""
    return 0.0 if value != value else value  # noqa: PLR0124 - only NaN


@compiled(is_part=True)
def _sum(x: Any, y: Any) -> Any:  # it has no bits below 2^-24, so subnormal ones are exact
    return _away(_settled(_counted(x) + _counted(y)) + 0.0, HALF_CEILING)


@compiled(is_part=True)
def _product(x: Any, y: Any) -> Any:
    value = _away(_settled(_counted(x) * _counted(y)), HALF_CEILING)
    if abs(value) < SMALLEST_NORMAL:
        value = copysign(np.floor(abs(value) * 2.0**24 + 0.5) * 2.0**-24, value)
    return value


@compiled(is_part=True)
def _difference(x: Any, y: Any) -> Any:
    return _away(_settled(_counted(x) - _counted(y)) + 0.0, HALF_CEILING)


@compiled()
def add(x: Array, y: Array, z: Array, inner: int) -> None:
    """Z = x + y: exact, rounded once, and no -0."""
    each(_sum, x, y, z, inner)


@compiled()
def subtract(x: Array, y: Array, z: Array, inner: int) -> None:
    """Z = x - y, as `add`."""
    each(_difference, x, y, z, inner)


@compiled()
def multiply(x: Array, y: Array, z: Array, inner: int) -> None:
    """Z = x · y, rounded to 11 bits, then to 2^-24."""
    each(_product, x, y, z, inner)
