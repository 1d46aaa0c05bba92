"""Thin products and small ones: rows of a weight read once, and rows of one matrix at a time."""

from __future__ import annotations

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, steps, vectors
from orion_ane.engine.plan.code import floats_at, longs_at
from orion_ane.engine.plan.kernels import copy, place_of, rounded, settle, view_of
from orion_ane.engine.plan.layout import COMMAND
from orion_ane.engine.plan.vectors import add_floats, add_halves, dot_floats, dot_halves

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C = (int(layout.At[name]) for name in "ABC")
IS_HALF, SHAPE, STRIDE = (int(layout.Of[name]) for name in ("IS_HALF", "SHAPE", "STRIDE"))

SOURCES = (code, kernels, lanes, layout, steps, vectors)


@native(COMMAND, sources=SOURCES)
def rows(
    command: int, views: int, _steps: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """y [O, C] = w [O, A] x [C, A]ᵀ, each row of w read once; B is C, few."""
    c = longs_at(command)
    w, x = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    y = place_of(views, bases, c[VIEW] + 2)
    inner, columns, rounds, is_half = c[A], c[B], c[ROUNDS], view_of(views, c[VIEW])[IS_HALF]
    for o in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        z = floats_at(y + 4 * o * columns)
        if is_half and columns == 1:
            z[0] = rounded(dot_halves(w + 2 * o * inner, x, inner), rounds)
            continue
        line = w + 4 * o * inner
        if is_half:
            line = registers
            copy(w + 2 * o * inner, 1, 1, line, inner)
        for s in range(columns):
            z[s] = rounded(dot_floats(line, x + 4 * s * inner, inner), rounds)


@native(COMMAND, sources=SOURCES)
def columns(
    command: int, views: int, _steps: int, bases: int, _registers: int, begin: int, end: int
) -> None:
    """y [A] = x [B] w [B, A], whose rows are packed; a unit is a stretch of columns."""
    c = longs_at(command)
    x, w = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    view = view_of(views, c[VIEW] + 1)
    inner, step, is_half = c[B], view[STRIDE + 3], view[IS_HALF]
    first = begin * c[SIZE]
    width = min(end * c[SIZE], c[TOTAL]) - first
    z, factors = place_of(views, bases, c[VIEW] + 2) + 4 * first, floats_at(x)
    kernels.fill(z, 0.0, width)
    for i in range(inner):
        if is_half:
            add_halves(factors[i], w + 2 * (i * step + first), z, width)
        else:
            add_floats(factors[i], w + 4 * (i * step + first), z, width)
    settle(z, width, c[ROUNDS])


@compiled(is_part=True)
def _row_of_matmul(
    line: int, y: int, out: int, sizes: tuple[int, int], is_half: int, y_step: int, y_row: int
) -> None:
    """Dot products where y's columns are packed, else scaled rows of y one after the other."""
    (n, k), size = sizes, 4 - 2 * is_half
    if y_step == 1:
        results = floats_at(out)
        for j in range(n):
            at = y + size * j * y_row
            results[j] = dot_halves(at, line, k) if is_half else dot_floats(at, line, k)
        return
    kernels.fill(out, 0.0, n)
    factors = floats_at(line)
    for j in range(k):
        at = y + size * j * y_step
        if is_half:
            add_halves(factors[j], at, out, n)
        else:
            add_floats(factors[j], at, out, n)


@native(COMMAND, sources=SOURCES)
def matmul(
    command: int, views: int, _steps: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """Rows of z [.., A, B] = x [.., A, C] y [.., C, B]; y's view has its axes as [.., B, C]."""
    c = longs_at(command)
    x, y = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    z = place_of(views, bases, c[VIEW] + 2)
    xv, yv = view_of(views, c[VIEW]), view_of(views, c[VIEW] + 1)
    m, n, k = c[A], c[B], c[C]
    x_step, y_step, y_row = xv[STRIDE + 4], yv[STRIDE + 4], yv[STRIDE + 3]
    x_half, y_half = xv[IS_HALF], yv[IS_HALF]
    job, stop = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    while job < stop:
        batch = job // m
        first = job - batch * m
        last = min(m, first + stop - job)
        x_at, y_at = np.int64(0), np.int64(0)
        for axis in range(2, -1, -1):
            index = batch % xv[SHAPE + axis]
            batch //= xv[SHAPE + axis]
            x_at += index * xv[STRIDE + axis]
            y_at += index * yv[STRIDE + axis]
        source = y + (4 - 2 * y_half) * y_at
        for i in range(first, last):
            line = x + (4 - 2 * x_half) * (x_at + i * xv[STRIDE + 3])
            if x_half or x_step != 1:
                copy(line, x_half, x_step, registers, k)
                line = registers
            out = z + 4 * (job + i - first) * n
            _row_of_matmul(line, source, out, (n, k), y_half, y_step, y_row)
            settle(out, n, c[ROUNDS])
        job += last - first
