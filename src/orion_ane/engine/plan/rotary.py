"""Rotary positions, in the half-split order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from orion_ane.engine import lanes
from orion_ane.engine.jit import intrinsic, native
from orion_ane.engine.lanes import SINGLE, Vectors, over
from orion_ane.engine.plan import code, kernels, layout, steps
from orion_ane.engine.plan.code import longs_at, pointer_at
from orion_ane.engine.plan.kernels import place_of, rounded_if
from orion_ane.engine.plan.layout import COMMAND

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
A = int(layout.At.A)

SOURCES = (code, kernels, lanes, layout, steps)


@intrinsic
def _turn(
    _context: Any, _x: Any, _cos: Any, _other: Any, _sin: Any, _sign: Any, _y: Any, _n: Any, _r: Any
) -> Any:
    """y [n] = x cos + sign other sin, rounded to fp16 after every step if that is asked for."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        *places, sign, y, n, rounds = args
        x, cos, other, sin, y = (pointer_at(b, at, SINGLE) for at in (*places, y))

        def write(v: Vectors, k: Any) -> None:
            def settled(found: Any) -> Any:
                return rounded_if(b, found, rounds)

            straight = settled(b.fmul(v.load(x, k), v.load(cos, k)))
            crossed = b.fmul(b.fmul(v.splat(sign), v.load(other, k)), v.load(sin, k))
            v.store(settled(b.fadd(straight, settled(crossed))), y, k)

        over(b, n, write)
        return context.get_dummy_value()

    at = types.int64
    return types.void(at, at, at, at, types.float32, at, at, at), code


@native(COMMAND, sources=SOURCES)
def rotate(
    command: int, views: int, _steps: int, bases: int, _registers: int, begin: int, end: int
) -> None:
    """y [.., 2, A] = x cos + (-x1, x0) sin; cos and sin are [2, A], and a job is one such."""
    c = longs_at(command)
    x, cos = place_of(views, bases, c[VIEW]), place_of(views, bases, c[VIEW] + 1)
    sin, y = place_of(views, bases, c[VIEW] + 2), place_of(views, bases, c[VIEW] + 3)
    n, rounds = c[A], c[ROUNDS]
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        at = 8 * n * job
        for half in range(2):
            turn, own, other = 4 * n * half, at + 4 * n * half, at + 4 * n * (1 - half)
            sign = np.float32(2 * half - 1)
            _turn(x + own, cos + turn, x + other, sin + turn, sign, y + own, n, rounds)
