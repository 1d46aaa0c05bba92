"""Reductions and softmax: a row of a value at a time, or some columns of its rows."""

from __future__ import annotations

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import native
from orion_ane.engine.plan import code, kernels, layout, steps, vectors
from orion_ane.engine.plan.kernels import floats, place_of, row, table
from orion_ane.engine.plan.layout import COLUMNS, COMMAND, VIEW_COLUMNS
from orion_ane.engine.plan.vectors import largest_of, sum_of

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C = int(layout.At.A), int(layout.At.B), int(layout.At.C)
_SUM, _MEAN, _MAX = map(int, layout.Fold)

SOURCES = (code, kernels, lanes, layout, steps, vectors)


@native(COMMAND, sources=SOURCES)
def reduce(
    command: int, views_at: int, _steps: int, bases_at: int, _registers: int, begin: int, end: int
) -> None:
    """x [outer, A, B] to y [outer, 1, B]; a job is a row, or COLUMNS columns."""
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    x, y = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    rows, inner, fold = c[A], c[B], c[C]
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        outer, first = job // blocks, job % blocks * COLUMNS
        width = min(COLUMNS, inner - first)
        source = x + 4 * (outer * rows * inner + first)
        z = floats(y + 4 * (outer * inner + first), width)
        if inner == 1:
            z[0] = largest_of(source, rows) if fold == _MAX else sum_of(source, rows)
        else:
            kernels.copy(floats(source, width), 1, z)
            for r in range(1, rows):
                line = floats(source + 4 * r * inner, width)
                if fold == _MAX:
                    kernels.raise_to(z, line)
                else:
                    kernels.add_to(z, line)
        if fold == _MEAN:
            kernels.divide_by(z, np.float32(rows))
        if c[ROUNDS]:
            kernels.round_halves(z)


@native(COMMAND, sources=SOURCES)
def softmax(
    command: int, views_at: int, _steps: int, bases_at: int, _registers: int, begin: int, end: int
) -> None:
    """Along the last axis of [outer, A]; a job is a row."""
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    x, y = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    size, lowest = c[A], np.finfo(np.float32).min
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        source, target = x + 4 * job * size, y + 4 * job * size
        z = floats(target, size)
        top = largest_of(source, size)
        top = max(top, lowest)
        kernels.exp_of_difference(floats(source, size), top, z)
        total = sum_of(target, size)
        kernels.divide_by(z, max(total, np.float32(1)))
        if c[ROUNDS]:
            kernels.round_halves(z)
