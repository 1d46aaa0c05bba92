"""The inner loops of a plan: over blocks in the nearest cache, rows of weights, rows of scores.

Each is a function of its own over contiguous arrays, which is what LLVM makes vectors of.  The
order of every sum depends on the sizes alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]  # it does, untyped

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan.code import (
    floats_at,
    half_of,
    halves_at,
    quotient,
    value_of,
)
from orion_ane.engine.plan.curves import exp_of, sigmoid_of, tanh_of
from orion_ane.types import Array

LANES = 64  # partial results of a reduction: 4 vectors of 16


@compiled(is_part=True)
def floats(address: Any, count: Any) -> Any:
    """The fp32 values at an address."""
    return carray(floats_at(address), count)


@compiled(is_part=True)
def halves(address: Any, count: Any) -> Any:
    """The bits of the fp16 values at an address."""
    return carray(halves_at(address), count)


# Elementwise: z of x and y, which are not z


@compiled(is_part=True)
def fill(z: Array, value: Any) -> None:
    """One value everywhere."""
    for i in range(z.shape[0]):
        z[i] = value


@compiled(is_part=True)
def copy(x: Array, step: int, z: Array) -> None:
    """Every `step`-th value of x, which may be fp16."""
    for i in range(z.shape[0]):
        z[i] = value_of(x[i * step])


@compiled(is_part=True)
def spread(x: Array, z: Array, step: int) -> None:
    """x to every `step`-th place of z."""
    for i in range(x.shape[0]):
        z[i * step] = x[i]


@compiled(is_part=True)
def narrow(x: Array, z: Array) -> None:
    """The bits of x, rounded to fp16."""
    for i in range(x.shape[0]):
        z[i] = half_of(x[i])


@compiled(is_part=True)
def round_halves(z: Array) -> None:
    """Each value rounded to fp16."""
    for i in range(z.shape[0]):
        z[i] = value_of(half_of(z[i]))


@compiled(is_part=True)
def add(x: Array, y: Array, z: Array) -> None:
    """The sum."""
    for i in range(z.shape[0]):
        z[i] = x[i] + y[i]


@compiled(is_part=True)
def sub(x: Array, y: Array, z: Array) -> None:
    """The difference."""
    for i in range(z.shape[0]):
        z[i] = x[i] - y[i]


@compiled(is_part=True)
def mul(x: Array, y: Array, z: Array) -> None:
    """The product."""
    for i in range(z.shape[0]):
        z[i] = x[i] * y[i]


@compiled(is_part=True)
def div(x: Array, y: Array, z: Array) -> None:
    """The quotient."""
    for i in range(z.shape[0]):
        z[i] = quotient(x[i], y[i])


@compiled(is_part=True)
def larger(x: Array, y: Array, z: Array) -> None:
    """The larger; NaN where either is."""
    for i in range(z.shape[0]):
        a, b = x[i], y[i]
        z[i] = a if (a > b) | (a != a) else b  # noqa: PLR0124 - NaN stays


@compiled(is_part=True)
def at_least(x: Array, y: Array, z: Array) -> None:
    """1 where x ≥ y, else 0."""
    for i in range(z.shape[0]):
        z[i] = np.float32(1) if x[i] >= y[i] else np.float32(0)


@compiled(is_part=True)
def choose(c: Array, x: Array, y: Array, z: Array) -> None:
    """x where c, else y."""
    for i in range(z.shape[0]):
        z[i] = x[i] if c[i] != np.float32(0) else y[i]


@compiled(is_part=True)
def clip(x: Array, low: Any, high: Any, z: Array) -> None:
    """x held between low and high."""
    for i in range(z.shape[0]):
        a = x[i]
        a = max(a, low)
        z[i] = min(a, high)


@compiled(is_part=True)
def relu(x: Array, z: Array) -> None:
    """The larger of x and 0."""
    for i in range(z.shape[0]):
        a = x[i]
        z[i] = max(np.float32(0), a)


@compiled(is_part=True)
def neg(x: Array, z: Array) -> None:
    """The opposite."""
    for i in range(z.shape[0]):
        z[i] = -x[i]


@compiled(is_part=True)
def exp(x: Array, z: Array) -> None:
    """e to the x."""
    for i in range(z.shape[0]):
        z[i] = exp_of(x[i])


@compiled(is_part=True)
def tanh(x: Array, z: Array) -> None:
    """The hyperbolic tangent."""
    for i in range(z.shape[0]):
        z[i] = tanh_of(x[i])


@compiled(is_part=True)
def sigmoid(x: Array, z: Array) -> None:
    """The logistic curve."""
    for i in range(z.shape[0]):
        z[i] = sigmoid_of(x[i])


@compiled(is_part=True)
def sqrt(x: Array, z: Array) -> None:
    """The square root."""
    for i in range(z.shape[0]):
        z[i] = np.sqrt(x[i])


@compiled(is_part=True)
def rsqrt(x: Array, eps: Any, z: Array) -> None:
    """1 / the square root of x + eps."""
    for i in range(z.shape[0]):
        z[i] = quotient(np.float32(1), np.sqrt(x[i] + eps))


# Reductions: LANES partial results, then those one by one


@compiled(is_part=True)
def add_to(z: Array, x: Array) -> None:
    """Add x to z."""
    for i in range(z.shape[0]):
        z[i] += x[i]


@compiled(is_part=True)
def raise_to(z: Array, x: Array) -> None:
    """The larger of x and z to z; NaN where either is."""
    for i in range(z.shape[0]):
        a, b = z[i], x[i]
        z[i] = a if (a > b) | (a != a) else b  # noqa: PLR0124


@compiled(is_part=True)
def sum_of(x: Array, lanes: Array) -> Any:
    """The sum of a row."""
    whole = x.shape[0] // LANES * LANES
    fill(lanes, np.float32(0))
    for i in range(0, whole, LANES):
        add_to(lanes, x[i : i + LANES])
    total = np.float32(0)
    for i in range(LANES):
        total += lanes[i]
    for i in range(whole, x.shape[0]):
        total += x[i]
    return total


@compiled(is_part=True)
def largest_of(x: Array, lanes: Array) -> Any:
    """The largest of a row; NaN where there is one."""
    whole = x.shape[0] // LANES * LANES
    top = x[0]
    if whole:
        copy(x[:LANES], 1, lanes)
        for i in range(LANES, whole, LANES):
            raise_to(lanes, x[i : i + LANES])
        for i in range(LANES):
            a = lanes[i]
            top = a if (a > top) | (a != a) else top  # noqa: PLR0124
    for i in range(whole, x.shape[0]):
        a = x[i]
        top = a if (a > top) | (a != a) else top  # noqa: PLR0124
    return top


@compiled(is_part=True)
def exp_of_difference(x: Array, top: Any, z: Array) -> None:
    """e to the x - top."""
    for i in range(z.shape[0]):
        z[i] = exp_of(x[i] - top)


@compiled(is_part=True)
def divide_by(z: Array, divisor: Any) -> None:
    """Divide each value."""
    for i in range(z.shape[0]):
        z[i] = quotient(z[i], divisor)
