"""The rule of the ANE's product-sums in Python's integers, as plainly as it can be said."""

from __future__ import annotations

import numpy as np

from orion_ane.ane.numerics import Overflow
from orion_ane.types import Array

CEILING = 1 << 31  # 2^15 in units of 2^-16


def exponent(value: float) -> int:
    return max(int(np.frexp(value)[1]) - 1, -14)


def units(a: float, b: float) -> int:
    """A product of finite fp16 numbers in units of 2^-16."""
    if exponent(a) + exponent(b) < -16:
        return 0
    exact = int(a * 2.0**24) * int(b * 2.0**24)  # in units of 2^-48
    size = (abs(exact) + (1 << 31)) >> 32
    return size if exact >= 0 else -size


def away(total: int) -> float:
    """Units as the nearest fp16 number below the ceiling, ties away from zero."""
    size, shift = abs(total), max(abs(total).bit_length() - 11, 0)
    rounded = ((size + (1 << shift >> 1)) >> shift) << shift
    value = float("inf") if rounded >= CEILING else rounded * 2.0**-16
    return value if total >= 0 else -value


def slow_sum(w: Array, x: Array, overflow: Overflow) -> float:
    """One product-sum, by the definition."""
    signs, total = set(), 0
    for a, b in zip(map(float, w), map(float, x), strict=True):
        a, b = (float("inf") if value != value else value for value in (a, b))  # noqa: PLR0124, PLW2901 - NaN
        if 0 in (a, b):
            continue
        if np.isinf(a) or np.isinf(b):
            signs.add((a > 0) == (b > 0))
    for a, b in zip(map(float, w), map(float, x), strict=True):
        if signs:
            return 0.0 if len(signs) == 2 else float("inf" if signs == {True} else "-inf")
        if np.isfinite(a) and np.isfinite(b):
            total += units(a, b)
        if overflow == "sticky" and abs(total) >= CEILING:
            return float("inf") if total > 0 else float("-inf")
    return away(total)


def slow(w: Array, x: Array, overflow: Overflow = "final") -> Array:
    return np.array([[slow_sum(row, column, overflow) for column in x.T] for row in w], np.float16)


def sums(w: Array, x: Array) -> Array:
    """All sums in units of 2^-16, of finite operands, quicker: numpy's 64-bit integers."""
    exponents = [np.maximum(np.frexp(v.astype(np.float64))[1] - 1, -14) for v in (w, x)]
    out = np.empty((w.shape[0], x.shape[1]), np.int64)
    for o in range(w.shape[0]):
        exact = w[o].astype(np.float64)[:, None] * x.astype(np.float64)
        whole = np.trunc(exact * 65536 + np.copysign(0.5, exact)).astype(np.int64)
        whole[exponents[0][o][:, None] + exponents[1] < -16] = 0
        out[o] = whole.sum(axis=0)
    return out
