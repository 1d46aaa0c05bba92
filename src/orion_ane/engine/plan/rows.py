"""Reductions and softmax: a row of a value at a time, or some columns of its rows."""

from __future__ import annotations

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import native
from orion_ane.engine.plan import code, kernels, layout, steps, vectors
from orion_ane.engine.plan.code import floats_at, longs_at
from orion_ane.engine.plan.kernels import place_of
from orion_ane.engine.plan.layout import COLUMNS, COMMAND
from orion_ane.engine.plan.vectors import largest_of, sum_of

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C = int(layout.At.A), int(layout.At.B), int(layout.At.C)
_SUM, _MEAN, _MAX = map(int, layout.Fold)
_LOWEST = np.finfo(np.float32).min

SOURCES = (code, kernels, lanes, layout, steps, vectors)


@native(COMMAND, sources=SOURCES)
def reduce(
    command: int, views: int, _steps: int, bases: int, _registers: int, begin: int, end: int
) -> None:
    """x [outer, A, B] to y [outer, 1, B]; a job is a row, or COLUMNS columns."""
    c = longs_at(command)
    x, y = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    rows, inner, fold = c[A], c[B], c[C]
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        outer, first = job // blocks, job % blocks * COLUMNS
        width = min(COLUMNS, inner - first)
        source, z = x + 4 * (outer * rows * inner + first), y + 4 * (outer * inner + first)
        if inner == 1:
            found = largest_of(source, rows) if fold == _MAX else sum_of(source, rows)
            floats_at(z)[0] = found
        else:
            kernels.move(z, source, width)
            for r in range(1, rows):
                if fold == _MAX:
                    kernels.raise_to(z, source + 4 * r * inner, width)
                else:
                    kernels.add_to(z, source + 4 * r * inner, width)
        if fold == _MEAN:
            kernels.divide_by(z, np.float32(rows), width)
        kernels.settle(z, width, c[ROUNDS])


@native(COMMAND, sources=SOURCES)
def softmax(
    command: int, views: int, _steps: int, bases: int, _registers: int, begin: int, end: int
) -> None:
    """Along the last axis of [outer, A]; a job is a row."""
    c = longs_at(command)
    x, y = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    size = c[A]
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        source, z = x + 4 * job * size, y + 4 * job * size
        top = largest_of(source, size)
        top = max(top, _LOWEST)
        kernels.move(z, source, size)
        kernels.add_number(z, -top, size)
        kernels.exp_each(z, size)
        kernels.divide_by(z, max(sum_of(z, size), np.float32(1)), size)
        kernels.settle(z, size, c[ROUNDS])
