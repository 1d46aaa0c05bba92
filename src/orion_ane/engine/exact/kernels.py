"""The passes that make fp16 values, as the ANE has them.  All arrays are flat."""

from __future__ import annotations

from functools import partial
from math import copysign, inf
from typing import Any

import numpy as np

from orion_ane.engine import jit, lanes
from orion_ane.engine import kernels as halves
from orion_ane.engine.kernels import _half, _load
from orion_ane.engine.macs import arithmetic, kernels, vectors
from orion_ane.engine.macs.arithmetic import HALF_CEILING, SMALLEST_NORMAL, each
from orion_ane.engine.macs.kernels import _away
from orion_ane.types import Array

compiled = partial(jit.compiled, sources=(lanes, vectors, kernels, arithmetic, halves))

_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
_INFINITE, _CEILING = np.uint32(0x7F800000), np.uint32(0x47800000)  # the second is 2^16
_NORMAL = np.uint32(0x38800000)  # 2^-14
_HALF, _KEPT = np.uint32(0x1000), np.uint32(0xFFFFE000)  # of the last bit of fp16, and above it


@compiled()
def settle(values: Array, bits: Array) -> None:
    """Round to fp16 in place, ties away from zero; NaN is +0.  Both are one fp32 array."""
    for i in range(values.shape[0]):
        size = bits[i] & _MAGNITUDE
        sign = bits[i] & _SIGN
        if size > _INFINITE:
            bits[i] = np.uint32(0)
        elif size >= _NORMAL:
            rounded = (size + _HALF) & _KEPT
            bits[i] = sign | (_INFINITE if rounded >= _CEILING else rounded)
        else:
            steps = abs(values[i]) * np.float32(2.0**24)
            whole = np.floor(steps)
            if steps - whole >= np.float32(0.5):
                whole += np.float32(1)
            values[i] = np.copysign(whole * np.float32(2.0**-24), values[i])


@compiled()
def enter(bits: Array, x: Array) -> None:
    """Write the fp16 values of the bits to x; NaN counts as +inf."""
    for i in range(x.shape[0]):
        value = _load(bits[i])
        x[i] = np.float32(inf) if value != value else value  # noqa: PLR0124 - only NaN


@compiled()
def look_up(x: Array, table: Array, y: Array) -> None:
    """Y = what the table says of the bits of each fp16 value."""
    for i in range(x.shape[0]):
        y[i] = table[_half(x[i])]


@compiled(is_part=True)
def _rounded(value: Any) -> Any:
    """A result in fp64, rounded to fp16 once, ties away from zero; NaN is +0."""
    if value != value:  # noqa: PLR0124 - only NaN
        return 0.0
    if abs(value) >= SMALLEST_NORMAL:
        return _away(value, HALF_CEILING)
    steps = abs(value) * 2.0**24
    whole = np.floor(steps)
    if steps - whole >= 0.5:
        whole += 1.0
    return copysign(whole * 2.0**-24, value)


@compiled(is_part=True)
def _quotient(x: Any, y: Any) -> Any:
    return _rounded(np.float64(x / (y + np.float32(0))))  # -0 divides as +0


@compiled()
def divide(x: Array, y: Array, z: Array, inner: int) -> None:
    """Z = x / y in fp32, rounded; y as in `each`."""
    each(_quotient, x, y, z, inner)


@compiled(fastmath=frozenset({"reassoc"}))
def _total(x: Array) -> Any:
    total = 0.0  # in fp64, where sums of fp16 values are exact in any order
    for i in range(x.shape[0]):
        total += np.float64(x[i])
    return total


@compiled()
def total(x: Array, y: Array, inner: int, divisor: float) -> None:
    """Y [outer · inner] = Σ x [outer · count · inner] / divisor, rounded."""
    count = x.shape[0] // y.shape[0]
    if inner == 1:
        for o in range(y.shape[0]):
            y[o] = _rounded(_total(x[o * count : (o + 1) * count]) / divisor)
        return
    sums = np.empty(inner)
    for at in range(0, y.shape[0], inner):
        for i in range(inner):
            sums[i] = 0.0
        for first in range(at * count, (at + inner) * count, inner):
            for i in range(inner):
                sums[i] += np.float64(x[first + i])
        for i in range(inner):
            y[at + i] = _rounded(sums[i] / divisor)
