"""Norms: a row of a value at a time, or some columns of its rows.

Each step is what an op of its own would do, in the same order, so that the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, steps, vectors
from orion_ane.engine.plan.code import from_bits, quotient
from orion_ane.engine.plan.kernels import floats, place_of, rounded, row, settle, table
from orion_ane.engine.plan.layout import COLUMNS, COMMAND, VIEW_COLUMNS
from orion_ane.engine.plan.vectors import largest_of, sum_of
from orion_ane.types import Array

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C, D = (int(layout.At[name]) for name in "ABCD")
IS_HALF = int(layout.Of.IS_HALF)

SOURCES = (code, kernels, lanes, layout, steps, vectors)


@compiled(is_part=True)
def _larger(a: Any, b: Any) -> Any:
    """NaN where either is."""
    return a if (a > b) | (a != a) else b  # noqa: PLR0124


@compiled(is_part=True)
def _sizes(x: Array, z: Array) -> None:
    for i in range(z.shape[0]):
        z[i] = abs(x[i])


@compiled(is_part=True)
def _squares(x: Array, z: Array) -> None:
    for i in range(z.shape[0]):
        z[i] = x[i] * x[i]


@compiled(is_part=True)
def _multiply(z: Array, x: Any) -> None:
    for i in range(z.shape[0]):
        z[i] *= x


@compiled(is_part=True)
def _factor(mean: Any, small: Any, given: tuple[Any, Any, Any, Any], rounds: int) -> Any:
    """One over the root of the mean of squares, and of what is added to it."""
    if given[0] & 2:
        mean = rounded(mean + rounded(small * small, rounds), rounds)
    return rounded(quotient(np.float32(1), np.sqrt(mean + given[3])), rounds)


@compiled(is_part=True)
def _row(y: int, rows: int, other: int, given: tuple[Any, Any, Any, Any], rounds: int) -> None:
    """A row at y, in place; `other` is room for as many numbers."""
    z, scratch, count, small = floats(y, rows), floats(other, rows), np.float32(rows), np.float32(0)
    if given[0] & 1:
        kernels.add_number(z, -rounded(quotient(sum_of(y, rows), count), rounds))
        settle(z, rounds)
    if given[0] & 2:
        _sizes(z, scratch)
        top = _larger(largest_of(other, rows), given[1])
        small = rounded(quotient(given[2], top), rounds)
        kernels.divide_by(z, top)
        settle(z, rounds)
    _squares(z, scratch)
    settle(scratch, rounds)
    mean = rounded(quotient(sum_of(other, rows), count), rounds)
    _multiply(z, _factor(mean, small, given, rounds))
    settle(z, rounds)


@compiled(is_part=True)
def _add_squares(z: Array, x: Array, rounds: int) -> None:
    for i in range(z.shape[0]):
        z[i] += rounded(x[i] * x[i], rounds)


@compiled(is_part=True)
def _raise_sizes(z: Array, x: Array) -> None:
    for i in range(z.shape[0]):
        z[i] = _larger(abs(x[i]), z[i])


@compiled(is_part=True)
def _subtract(z: Array, x: Array) -> None:
    for i in range(z.shape[0]):
        z[i] -= x[i]


@compiled(is_part=True)
def _divide(z: Array, x: Array) -> None:
    for i in range(z.shape[0]):
        z[i] = quotient(z[i], x[i])


@compiled(is_part=True)
def _scale(z: Array, x: Array) -> None:
    for i in range(z.shape[0]):
        z[i] *= x[i]


@compiled(is_part=True)
def _columns(
    y: int,
    sizes: tuple[int, int, int],
    other: int,
    given: tuple[Any, Any, Any, Any],
    rounds: int,
) -> None:
    """Some columns of rows from y on, in place; `other` is room for NORM_ROWS times as many."""
    rows, inner, width = sizes
    count, step = np.float32(rows), 4 * inner
    sums, tops = floats(other, width), floats(other + 4 * COLUMNS, width)
    if given[0] & 1:
        kernels.copy(floats(y, width), 1, sums)
        for r in range(1, rows):
            kernels.add_to(sums, floats(y + step * r, width))
        kernels.divide_by(sums, count)
        settle(sums, rounds)
        for r in range(rows):
            _subtract(floats(y + step * r, width), sums)
            settle(floats(y + step * r, width), rounds)
    if given[0] & 2:
        kernels.fill(tops, np.float32(0))
        for r in range(rows):
            _raise_sizes(tops, floats(y + step * r, width))
        for i in range(width):
            tops[i] = _larger(tops[i], given[1])
        for r in range(rows):
            _divide(floats(y + step * r, width), tops)
            settle(floats(y + step * r, width), rounds)
    kernels.fill(sums, np.float32(0))
    for r in range(rows):
        _add_squares(sums, floats(y + step * r, width), rounds)
    for i in range(width):
        small = rounded(quotient(given[2], tops[i]), rounds) if given[0] & 2 else np.float32(0)
        sums[i] = _factor(rounded(quotient(sums[i], count), rounds), small, given, rounds)
    for r in range(rows):
        _scale(floats(y + step * r, width), sums)
        settle(floats(y + step * r, width), rounds)


@native(COMMAND, sources=SOURCES)
def norm(
    command: int, views_at: int, _steps: int, bases_at: int, registers: int, begin: int, end: int
) -> None:
    """y of x [outer, A, B] along A; a job is a row, or COLUMNS columns.

    The views: x, the floor and the root of a norm that is scaled.  C: 1 where it is centred, and 2
    where it is scaled; D: the bits of eps in fp64.
    """
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    at, rows, inner, rounds = c[VIEW], c[A], c[B], c[ROUNDS]
    x, y = place_of(views, bases, at), place_of(views, bases, at + 3)
    numbers = floats(registers, 2)
    for i in range(2):
        kernels.read(
            place_of(views, bases, at + 1 + i), views[at + 1 + i, IS_HALF], numbers[i : i + 1]
        )
    given = (c[C], numbers[0], numbers[1], np.float32(from_bits(c[D])))
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        outer, first = job // blocks, job % blocks * COLUMNS
        width = min(COLUMNS, inner - first)
        start = 4 * (outer * rows * inner + first)
        for r in range(rows if inner > 1 else 1):
            n = width if inner > 1 else rows
            kernels.copy(
                floats(x + start + 4 * inner * r, n), 1, floats(y + start + 4 * inner * r, n)
            )
        if inner == 1:
            _row(y + start, rows, registers + 4 * COLUMNS, given, rounds)
        else:
            _columns(y + start, (rows, inner, width), registers + 4 * COLUMNS, given, rounds)
