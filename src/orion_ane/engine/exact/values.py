"""Values as the ANE has them: what enters, what a computation leaves, what is too small."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from orion_ane.ane.rounding import SMALLEST_NORMAL
from orion_ane.engine.functions import Function
from orion_ane.engine.half import flat
from orion_ane.types import Array

_INF, _ZERO = np.array(np.inf, np.float32), np.array(0, np.float32)


@cache
def kernels() -> Any:
    """The kernels, when the first is needed: they import numba."""
    from orion_ane.engine.exact import kernels as found

    return found


def entered(x: Array) -> Array:
    """fp16 values in fp32 of which none is NaN: that counts as +inf.  x may be changed."""
    odd = np.isnan(x)
    if odd.any():
        x = np.where(odd, _INF, x)
    return x


def entering(fed: Array) -> Array:
    """What `entered` makes of fp16, in a new array."""
    x = np.empty(fed.shape, np.float32)
    kernels().enter(flat(fed), x.ravel())
    return x


def settled(x: Array) -> Array:
    """Results in fp32, rounded to fp16 once, ties away; what is indeterminate is +0.

    x may be changed; it is nobody else's.
    """
    row = x.ravel(order="K")  # a view: a fresh result is dense, in some order of its axes
    kernels().settle(row, row.view(np.uint32))
    return x if row.base is not None else row.reshape(x.shape)


def settling(function: Function) -> Function:
    """The function, its results settled; those in fp64 are rounded once as well."""
    return lambda *args: settled(_single(np.asarray(function(*args))))


def _single(x: Array) -> Array:
    """fp32, cut off and with an odd last bit where that is not exact: no tie comes of it."""
    if x.dtype != np.float64:
        return x.astype(np.float32, copy=False)
    single = x.astype(np.float32)
    bits = single.view(np.uint32)
    bits -= np.abs(single) > np.abs(x)
    bits |= single != x  # of NaN, too, which stays one
    return single


def flushing(function: Function) -> Function:
    """The function, with 0 for operands and results below 2^-14."""
    return lambda *args: _flushed(function(*map(_flushed, args)))


def clamping(function: Function, limit: float) -> Function:
    """The function, with results of a larger magnitude infinite."""

    def clamped(*args: Array) -> Array:
        y = function(*args)
        return np.where(np.abs(y) > limit, np.copysign(_INF, y), y)

    return clamped


def _flushed(x: Array) -> Array:
    if x.dtype != np.float32:
        return x
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.copysign(_ZERO, x), x)
