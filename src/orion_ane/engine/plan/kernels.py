"""The inner loops of a plan: over blocks in the nearest cache, rows of weights, rows of scores.

Each is a function of its own over contiguous arrays, which is what LLVM makes vectors of.  The
order of every sum depends on the sizes alone.
"""

from __future__ import annotations

from typing import Any

from numba import carray  # type: ignore[attr-defined]  # it does, untyped

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan import layout
from orion_ane.engine.plan.code import (
    floats_at,
    half_of,
    halves_at,
    longs_at,
    quotient,
    value_of,
)
from orion_ane.engine.plan.steps import exp_of
from orion_ane.types import Array

_BASE, _OFFSET = int(layout.Of.BASE), int(layout.Of.OFFSET)
MANY = layout.MANY


@compiled(is_part=True)
def floats(address: Any, count: Any) -> Any:
    """The fp32 values at an address."""
    return carray(floats_at(address), count)


@compiled(is_part=True)
def halves(address: Any, count: Any) -> Any:
    """The bits of the fp16 values at an address."""
    return carray(halves_at(address), count)


@compiled(is_part=True)
def row(address: Any) -> Any:
    """The numbers from an address on: a row of a table, or the bases."""
    return carray(longs_at(address), MANY)


@compiled(is_part=True)
def table(address: Any, columns: Any) -> Any:
    """The rows of a table at an address."""
    return carray(longs_at(address), (MANY, columns))


# Blocks


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
def settle(z: Array, rounds: int) -> None:
    """Each value rounded to fp16, if that is asked for."""
    if rounds:
        round_halves(z)


@compiled(is_part=True)
def rounded(x: Any, rounds: int) -> Any:
    """A value, rounded to fp16 if that is asked for."""
    return value_of(half_of(x)) if rounds else x


@compiled(is_part=True)
def read(at: int, is_half: int, z: Array) -> None:
    """The values of a packed view."""
    if is_half:
        copy(halves(at, z.shape[0]), 1, z)
    else:
        copy(floats(at, z.shape[0]), 1, z)


# Reductions


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
def exp_of_difference(x: Array, top: Any, z: Array) -> None:
    """e to the x - top."""
    for i in range(z.shape[0]):
        z[i] = exp_of(x[i] - top)


@compiled(is_part=True)
def add_number(z: Array, x: Any) -> None:
    """Add a number to each value."""
    for i in range(z.shape[0]):
        z[i] += x


@compiled(is_part=True)
def exp_each(z: Array) -> None:
    """e to each value."""
    for i in range(z.shape[0]):
        z[i] = exp_of(z[i])


@compiled(is_part=True)
def divide_by(z: Array, divisor: Any) -> None:
    """Divide each value."""
    for i in range(z.shape[0]):
        z[i] = quotient(z[i], divisor)


# Where things are


@compiled(is_part=True)
def place_of(views: Array, bases: Array, view: int) -> Any:
    """The address of a view's first element."""
    return bases[views[view, _BASE]] + views[view, _OFFSET]
