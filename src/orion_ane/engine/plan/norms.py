"""Norms: a row of a value at a time, or some columns of its rows.

Each step is what an op of its own would do, in the same order, so that the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, intrinsic, native
from orion_ane.engine.lanes import SINGLE, Vectors, over
from orion_ane.engine.plan import code, kernels, layout, steps, vectors
from orion_ane.engine.plan.code import floats_at, from_bits, longs_at, pointer_at, quotient
from orion_ane.engine.plan.kernels import place_of, rounded, rounded_if, settle, view_of
from orion_ane.engine.plan.layout import COLUMNS, COMMAND
from orion_ane.engine.plan.steps import larger
from orion_ane.engine.plan.vectors import largest_of, sum_of

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C, D = (int(layout.At[name]) for name in "ABCD")
IS_HALF = int(layout.Of.IS_HALF)

SOURCES = (code, kernels, lanes, layout, steps, vectors)


Given = tuple[Any, Any, Any, Any]  # 1 if centred and 2 if scaled, the floor, the root and eps


def _made(write: Any) -> Any:
    """A loop over z [n] of what is there, x [n], and whether to round."""

    @intrinsic
    def loop(_context: Any, _z: Any, _x: Any, _n: Any, _rounds: Any) -> Any:
        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            z, x = (pointer_at(b, at, SINGLE) for at in args[:2])

            def some(v: Vectors, k: Any) -> None:
                v.store(write(v, v.load(z, k), v.load(x, k), args[3]), z, k)

            over(b, args[2], some)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), code

    return loop


_squares = _made(lambda v, _z, x, rounds: rounded_if(v.b, v.b.fmul(x, x), rounds))
_sizes = _made(lambda v, _z, x, _rounds: v.size(x))
_add_squares = _made(lambda v, z, x, r: v.b.fadd(z, rounded_if(v.b, v.b.fmul(x, x), r)))
_raise_sizes = _made(lambda v, z, x, _rounds: larger(v.b, v.size(x), z))


@compiled(is_part=True)
def _larger(a: Any, b: Any) -> Any:
    """NaN where either is."""
    return a if (a > b) | (a != a) else b  # noqa: PLR0124


@compiled(is_part=True)
def _factor(mean: Any, small: Any, given: Given, rounds: int) -> Any:
    """One over the root of the mean of squares, and of what is added to it."""
    if given[0] & 2:
        mean = rounded(mean + rounded(small * small, rounds), rounds)
    return rounded(quotient(np.float32(1), np.sqrt(mean + given[3])), rounds)


@compiled(is_part=True)
def _row(z: int, rows: int, other: int, given: Given, rounds: int) -> None:
    """A row at z, in place; `other` is room for as many numbers."""
    count, small = np.float32(rows), np.float32(0)
    if given[0] & 1:
        kernels.add_number(z, -rounded(quotient(sum_of(z, rows), count), rounds), rows)
        settle(z, rows, rounds)
    if given[0] & 2:
        _sizes(other, z, rows, 0)
        top = _larger(largest_of(other, rows), given[1])
        small = rounded(quotient(given[2], top), rounds)
        kernels.divide_by(z, top, rows)
        settle(z, rows, rounds)
    _squares(other, z, rows, rounds)
    mean = rounded(quotient(sum_of(other, rows), count), rounds)
    kernels.multiply_by(z, _factor(mean, small, given, rounds), rows)
    settle(z, rows, rounds)


@compiled(is_part=True)
def _columns(y: int, sizes: tuple[int, int, int], other: int, given: Given, rounds: int) -> None:
    """Some columns of rows from y on, in place; `other` is room for NORM_ROWS times as many."""
    rows, inner, width = sizes
    count, step, tops = np.float32(rows), 4 * inner, other + 4 * COLUMNS
    end = y + step * rows
    if given[0] & 1:
        kernels.move(other, y, width)
        for z in range(y + step, end, step):
            kernels.add_to(other, z, width)
        kernels.divide_by(other, count, width)
        settle(other, width, rounds)
        for z in range(y, end, step):
            kernels.subtract_from(z, other, width)
            settle(z, width, rounds)
    if given[0] & 2:
        kernels.fill(tops, 0.0, width)
        for z in range(y, end, step):
            _raise_sizes(tops, z, width, 0)
        for i in range(width):
            floats_at(tops)[i] = _larger(floats_at(tops)[i], given[1])
        for z in range(y, end, step):
            kernels.divide_all(z, tops, width)
            settle(z, width, rounds)
    kernels.fill(other, 0.0, width)
    for z in range(y, end, step):
        _add_squares(other, z, width, rounds)
    sums = floats_at(other)
    for i in range(width):
        small = np.float32(0)
        if given[0] & 2:
            small = rounded(quotient(given[2], floats_at(tops)[i]), rounds)
        sums[i] = _factor(rounded(quotient(sums[i], count), rounds), small, given, rounds)
    for z in range(y, end, step):
        kernels.multiply_all(z, other, width)
        settle(z, width, rounds)


@native(COMMAND, sources=SOURCES)
def norm(
    command: int, views: int, _steps: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """y of x [outer, A, B] along A; a job is a row, or COLUMNS columns.

    The views: x, the floor and the root of a norm that is scaled.  C: 1 where it is centred, and 2
    where it is scaled; D: the bits of eps in fp64.
    """
    c = longs_at(command)
    at, rows, inner, rounds = c[VIEW], c[A], c[B], c[ROUNDS]
    x, y = place_of(views, bases, at), place_of(views, bases, at + 3)
    numbers, room = floats_at(registers), registers + 4 * COLUMNS
    for i in range(2):
        number = at + 1 + i
        is_half = view_of(views, number)[IS_HALF]
        kernels.copy(place_of(views, bases, number), is_half, 1, registers + 4 * i, 1)
    given = (c[C], numbers[0], numbers[1], np.float32(from_bits(c[D])))
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        outer, first = job // blocks, job % blocks * COLUMNS
        width = min(COLUMNS, inner - first)
        start = 4 * (outer * rows * inner + first)
        if inner == 1:
            kernels.move(y + start, x + start, rows)
            _row(y + start, rows, room, given, rounds)
            continue
        for r in range(rows):
            line = start + 4 * inner * r
            kernels.move(y + line, x + line, width)
        _columns(y + start, (rows, inner, width), room, given, rounds)
