"""exp, tanh and the logistic curve, in fp64 inside and rounded to fp32 once.

No step depends on a library or on what the processor can do, and LLVM makes vectors of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan.code import bits_of, from_bits, fused, quotient

_LOG2E = 1.4426950408889634
_LN2 = 0.6931471805599453
_WHOLE = 1.5 * 2.0**52  # added and taken away it rounds to a whole number, which its bits hold
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond, e to the x is 0 or infinite in fp32
_SMALL = 1e-4  # tanh x is x to fp32's precision below


@compiled(is_part=True)
def wide_exp(x: Any) -> Any:
    """e to the x in fp64, to some 1e-11, for x that fp32 can hold the result of; NaN of NaN."""
    x = max(x, _LOWEST)
    x = min(x, _HIGHEST)
    whole = fused(x, _LOG2E, _WHOLE)
    n = whole - _WHOLE
    r = fused(n, -_LN2, x)
    p = 1.0 / 362880.0
    p = fused(p, r, 1.0 / 40320.0)
    p = fused(p, r, 1.0 / 5040.0)
    p = fused(p, r, 1.0 / 720.0)
    p = fused(p, r, 1.0 / 120.0)
    p = fused(p, r, 1.0 / 24.0)
    p = fused(p, r, 1.0 / 6.0)
    p = fused(p, r, 0.5)
    p = fused(p, r, 1.0)
    p = fused(p, r, 1.0)
    return p * from_bits((bits_of(whole) + 1023) << 52)


@compiled(is_part=True)
def exp_of(x: Any) -> Any:
    """e to the x."""
    return np.float32(wide_exp(np.float64(x)))


@compiled(is_part=True)
def tanh_of(x: Any) -> Any:
    """The hyperbolic tangent."""
    size = np.float64(abs(x))
    bounded = min(size, 20.0)
    e = wide_exp(2.0 * bounded)
    curved = quotient(e - 1.0, e + 1.0)
    curved = size if size < _SMALL else curved
    signed = np.float32(curved if x > np.float32(0) else -curved)
    return x if x == np.float32(0) else signed


@compiled(is_part=True)
def sigmoid_of(x: Any) -> Any:
    """1 / (1 + e to the -x), stable on both sides of 0."""
    e = exp_of(-abs(x))
    top = np.float32(1) if x >= np.float32(0) else e
    return quotient(top, e + np.float32(1))
