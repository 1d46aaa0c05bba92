"""The commands of wide products: the right side laid out in panels, and rows times those."""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, gemm, kernels, layout, steps, tile_sizes, tiles, vectors
from orion_ane.engine.plan.code import longs_at
from orion_ane.engine.plan.kernels import place_of, view_of
from orion_ane.engine.plan.layout import COMMAND

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A, B, C = int(layout.At.A), int(layout.At.B), int(layout.At.C)
IS_HALF, SHAPE, STRIDE = (int(layout.Of[name]) for name in ("IS_HALF", "SHAPE", "STRIDE"))

SOURCES = (code, gemm, kernels, lanes, layout, steps, tile_sizes, tiles, vectors)


@compiled(is_part=True)
def _offset(view: Any, batch: Any) -> Any:
    """How far from its first the matrix of a batch lies, in elements."""
    at = np.int64(0)
    for axis in range(2, -1, -1):
        at += batch % view[SHAPE + axis] * view[STRIDE + axis]
        batch //= view[SHAPE + axis]
    return at


@native(COMMAND, sources=SOURCES)
def lay_panels(
    command: int, views: int, _steps: int, bases: int, _registers: int, begin: int, end: int
) -> None:
    """x [.., A, B] as panels [.., panel, A, columns]; a job is a panel."""
    c = longs_at(command)
    x, to = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    view, depth, columns = view_of(views, c[VIEW]), c[A], c[B]
    size, count = 4 - 2 * view[IS_HALF], gemm.panels_of(columns)
    steps = view[STRIDE + 3], view[STRIDE + 4]
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        first = job % count * tile_sizes.PANEL
        width = min(tile_sizes.PANEL, columns - first)
        source = x + size * (_offset(view, job // count) + first * steps[1])
        place = to + 4 * job * tile_sizes.PANEL * depth
        gemm.lay_panel(source, view[IS_HALF], steps, depth, width, place)


@native(COMMAND, sources=SOURCES)
def multiply(
    command: int, views: int, _steps: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """z [.., A, B] = x [.., A, C] times panels; a job is a strip of rows."""
    c = longs_at(command)
    x, panels = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    z = place_of(views, bases, c[VIEW] + 2)
    view, right = view_of(views, c[VIEW]), view_of(views, c[VIEW] + 1)
    m, n, k = c[A], c[B], c[C]
    adds: Any = np.int64(0)
    size, strips = 4 - 2 * view[IS_HALF], gemm.strips_of(m)
    steps = view[STRIDE + 3], view[STRIDE + 4]
    job, stop = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    while job < stop:
        batch = job // strips
        first = job - batch * strips
        last = min(strips, first + stop - job)
        source, laid = x + size * _offset(view, batch), panels + 4 * _offset(right, batch)
        out, sizes = z + 4 * batch * m * n, (m, n, k)
        gemm.multiply(
            source, view[IS_HALF], steps, laid, out, sizes, n, adds, first, last, registers
        )
        rows = min(m, last * tile_sizes.ROWS) - first * tile_sizes.ROWS
        kernels.settle(out + 4 * first * tile_sizes.ROWS * n, rows * n, c[ROUNDS])
        job += last - first
