"""Roundings of the ANE that numpy has not: to fp16 with ties away from zero.

What the elementwise functions make of NaN, infinity and zero: ane-numerics, section 4.
"""

from __future__ import annotations

import numpy as np

from orion_ane.types import Array

SIGNIFICANT = 11  # bits of an fp16 number, its hidden one included
FINEST = 2.0**-24  # the smallest fp16 number, and the distance of all below 2^-14
SMALLEST_NORMAL = 2.0**-14
CEILING = 2.0**16  # what would be the next number after 65504: infinite


def away(exact: Array, ceiling: float = CEILING) -> Array:
    """The fp16 numbers nearest to exact values, ties away from zero; infinite from the ceiling on.

    `exact` is fp64, or of a type that fp64 holds.  A value that is not finite stays what it is.
    """
    value = np.asarray(exact, np.float64)
    return _half(_to_grid(value, np.maximum(_last_place(value), FINEST)), ceiling)


def away_twice(exact: Array, ceiling: float = CEILING) -> Array:
    """As `away`, but rounded to 11 bits first, and what is below 2^-14 once more, to its grid.

    So a product of two fp16 numbers is rounded (ane-numerics, section 2, elementwise).
    """
    value = np.asarray(exact, np.float64)
    return _half(_to_grid(_to_grid(value, _last_place(value)), FINEST), ceiling)


def add(x: Array, y: Array) -> Array:
    """x + y of fp16 numbers: the exact sum, rounded once, and no -0."""
    return away(_exactly(np.add, x, y) + 0.0)


def subtract(x: Array, y: Array) -> Array:
    """x - y of fp16 numbers: the exact difference, rounded once, and no -0."""
    return away(_exactly(np.subtract, x, y) + 0.0)


def multiply(x: Array, y: Array) -> Array:
    """x · y of fp16 numbers: the exact product, rounded twice."""
    return away_twice(_exactly(np.multiply, x, y))


def flushed(x: Array) -> Array:
    """fp16 numbers, those below 2^-14 as zeros: for targets that have it so."""
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.copysign(np.float16(0), x), x)


def _exactly(operation: np.ufunc, x: Array, y: Array) -> Array:
    """The result in fp64.  NaN counts as +inf, and what is indeterminate is +0."""
    wide = (np.asarray(side, np.float64) for side in (x, y))
    with np.errstate(invalid="ignore"):  # inf - inf, 0 · inf
        value = operation(*(np.where(np.isnan(side), np.inf, side) for side in wide))
    return np.where(np.isnan(value), 0.0, value)


def _last_place(value: Array) -> Array:
    """The distance of numbers with 11 significant bits around each value."""
    _, exponent = np.frexp(np.where(np.isfinite(value), value, 1.0))
    return np.ldexp(1.0, exponent - SIGNIFICANT)


def _to_grid(value: Array, distance: Array | float) -> Array:
    """The nearest multiples of a power of two, ties away from zero."""
    steps = np.abs(value) / distance
    whole = np.floor(steps)
    with np.errstate(invalid="ignore"):  # inf - inf, which is no half
        # Not floor(steps + ½): that sum may itself round, up to the next whole number.
        whole += steps - whole >= 0.5
    return np.copysign(whole * distance, value)


def _half(value: Array, ceiling: float) -> Array:
    infinite = np.copysign(np.inf, value)
    return np.where(np.abs(value) >= ceiling, infinite, value).astype(np.float16)
