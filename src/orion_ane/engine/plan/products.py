"""Thin products and small ones: rows of a weight read once, and rows of one matrix at a time."""

from __future__ import annotations

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, steps, vectors
from orion_ane.engine.plan.kernels import floats, halves, place_of, rounded, row, table
from orion_ane.engine.plan.layout import COMMAND, VIEW_COLUMNS
from orion_ane.engine.plan.vectors import add_floats, add_halves, dot_floats, dot_halves

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C = (int(layout.At[name]) for name in "ABC")
IS_HALF, SHAPE, STRIDE = (int(layout.Of[name]) for name in ("IS_HALF", "SHAPE", "STRIDE"))

SOURCES = (code, kernels, lanes, layout, steps, vectors)


@native(COMMAND, sources=SOURCES)
def rows(
    command: int, views_at: int, _steps: int, bases_at: int, registers: int, begin: int, end: int
) -> None:
    """y [O, C] = w [O, A] x [C, A]ᵀ, each row of w read once; B is C, few."""
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    w, x = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    y = place_of(views, bases, c[VIEW] + 2)
    inner, columns, rounds, is_half = c[A], c[B], c[ROUNDS], views[c[VIEW], IS_HALF]
    for o in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        z = floats(y + 4 * o * columns, columns)
        if is_half and columns == 1:
            z[0] = rounded(dot_halves(w + 2 * o * inner, x, inner), rounds)
            continue
        line = w + 4 * o * inner
        if is_half:
            line = registers
            kernels.copy(halves(w + 2 * o * inner, inner), 1, floats(line, inner))
        for s in range(columns):
            z[s] = rounded(dot_floats(line, x + 4 * s * inner, inner), rounds)


@native(COMMAND, sources=SOURCES)
def columns(
    command: int, views_at: int, _steps: int, bases_at: int, _registers: int, begin: int, end: int
) -> None:
    """y [A] = x [B] w [B, A], whose rows are packed; a unit is a stretch of columns."""
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    x, w = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    y = place_of(views, bases, c[VIEW] + 2)
    inner, step, is_half = c[B], views[c[VIEW] + 1, STRIDE + 3], views[c[VIEW] + 1, IS_HALF]
    first = begin * c[SIZE]
    width = min(end * c[SIZE], c[TOTAL]) - first
    z, factors = floats(y + 4 * first, width), floats(x, inner)
    kernels.fill(z, np.float32(0))
    for i in range(inner):
        if is_half:
            add_halves(factors[i], w + 2 * (i * step + first), y + 4 * first, width)
        else:
            add_floats(factors[i], w + 4 * (i * step + first), y + 4 * first, width)
    if c[ROUNDS]:
        kernels.round_halves(z)


@compiled(is_part=True)
def _row_of_matmul(
    line: int,
    y: int,
    out: int,
    sizes: tuple[int, int],
    is_half: int,
    y_step: int,
    y_row: int,
) -> None:
    """Dot products where y's columns are packed, else scaled rows of y one after the other."""
    (n, k), size = sizes, 4 - 2 * is_half
    if y_step == 1:
        results = floats(out, n)
        for j in range(n):
            at = y + size * j * y_row
            results[j] = dot_halves(at, line, k) if is_half else dot_floats(at, line, k)
        return
    kernels.fill(floats(out, n), np.float32(0))
    factors = floats(line, k)
    for j in range(k):
        at = y + size * j * y_step
        if is_half:
            add_halves(factors[j], at, out, n)
        else:
            add_floats(factors[j], at, out, n)


@native(COMMAND, sources=SOURCES)
def matmul(
    command: int, views_at: int, _steps: int, bases_at: int, registers: int, begin: int, end: int
) -> None:
    """Rows of z [.., A, B] = x [.., A, C] y [.., C, B]; y's view has its axes as [.., B, C]."""
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    x, y = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    z = place_of(views, bases, c[VIEW] + 2)
    xv, yv = views[c[VIEW]], views[c[VIEW] + 1]
    m, n, k, rounds = c[A], c[B], c[C], c[ROUNDS]
    x_step, y_step, y_row = xv[STRIDE + 4], yv[STRIDE + 4], yv[STRIDE + 3]
    is_half = yv[IS_HALF]
    y_size = 4 - 2 * is_half
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
        source = y + y_size * y_at
        for i in range(first, last):
            line, at = registers, x_at + i * xv[STRIDE + 3]
            if xv[IS_HALF]:
                kernels.copy(halves(x + 2 * at, (k - 1) * x_step + 1), x_step, floats(line, k))
            elif x_step == 1:
                line = x + 4 * at
            else:
                kernels.copy(floats(x + 4 * at, (k - 1) * x_step + 1), x_step, floats(line, k))
            out = z + 4 * (job + i - first) * n
            _row_of_matmul(line, source, out, (n, k), is_half, y_step, y_row)
            if rounds:
                kernels.round_halves(floats(out, n))
        job += last - first
