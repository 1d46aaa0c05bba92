"""Rotary positions, in the half-split order."""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, steps
from orion_ane.engine.plan.code import half_of, value_of
from orion_ane.engine.plan.kernels import floats, place_of, row, table
from orion_ane.engine.plan.layout import COMMAND, VIEW_COLUMNS
from orion_ane.types import Array

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A = int(layout.At.A)

SOURCES = (code, kernels, layout, steps)


@compiled(is_part=True)
def _turn(x: Array, cos: Array, other: Array, sin: Array, sign: Any, y: Array) -> None:
    for i in range(y.shape[0]):
        y[i] = x[i] * cos[i] + sign * other[i] * sin[i]


@compiled(is_part=True)
def _turn_rounded(x: Array, cos: Array, other: Array, sin: Array, sign: Any, y: Array) -> None:
    for i in range(y.shape[0]):
        straight = value_of(half_of(x[i] * cos[i]))
        crossed = value_of(half_of(sign * other[i] * sin[i]))
        y[i] = value_of(half_of(straight + crossed))


@native(COMMAND, sources=SOURCES)
def rotate(
    command: int, views_at: int, _steps: int, bases_at: int, _registers: int, begin: int, end: int
) -> None:
    """y [.., 2, A] = x cos + (-x1, x0) sin; cos and sin are [2, A], and a job is one such."""
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    x, cos = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    sin, y = place_of(views, bases, c[VIEW] + 2), place_of(views, bases, c[VIEW] + 3)
    n = c[A]
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        at = 8 * n * job
        for half in range(2):
            own, other = at + 4 * n * half, at + 4 * n * (1 - half)
            sign, to = np.float32(2 * half - 1), floats(y + own, n)
            of = floats(cos + 4 * n * half, n), floats(sin + 4 * n * half, n)
            if c[ROUNDS]:
                _turn_rounded(floats(x + own, n), of[0], floats(x + other, n), of[1], sign, to)
            else:
                _turn(floats(x + own, n), of[0], floats(x + other, n), of[1], sign, to)
