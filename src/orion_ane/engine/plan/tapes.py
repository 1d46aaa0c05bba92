"""Tapes: elementwise steps, all of them on one block before the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, steps
from orion_ane.engine.plan.code import floats_at, from_bits, longs_at
from orion_ane.engine.plan.kernels import place_of, view_of
from orion_ane.engine.plan.layout import (
    BLOCK,
    COMMAND,
    RANK,
    REGISTER_BYTES,
    STEP_COLUMNS,
)
from orion_ane.engine.plan.steps import apply

# Plain numbers: numba compiles them in.
SIZE, TOTAL = int(layout.At.SIZE), int(layout.At.TOTAL)
STEP, STEPS = int(layout.At.STEP), int(layout.At.STEPS)
IS_HALF, SHAPE, STRIDE = (int(layout.Of[name]) for name in ("IS_HALF", "SHAPE", "STRIDE"))
DO, TO, X, Y, Z, STEP_ROUNDS, P, Q = map(int, layout.In)
_LOAD, _STORE, _FILL = int(layout.Do.LOAD), int(layout.Do.STORE), int(layout.Do.FILL)

SOURCES = (code, kernels, layout, steps)


@compiled(is_part=True)
def _operand(views: int, bases: int, registers: int, at: int, start: int) -> Any:
    """Where a block of an operand is: a register, or where a packed view has it."""
    if at >= 0:
        return registers + at * REGISTER_BYTES
    return place_of(views, bases, -1 - at) + 4 * start


@compiled(is_part=True)
def _place(view: Any, index: int) -> Any:
    """How far from its first an element of a view lies."""
    at, axis = np.int64(0), RANK - 1
    while index:
        size = view[SHAPE + axis]
        up = index // size
        at += (index - up * size) * view[STRIDE + axis]
        index = up
        axis -= 1
    return at


@compiled(is_part=True)
def _next(view: Any, index: int, at: int, line: int, page: int) -> Any:
    """The place of the row after one that begins at `at`, by steps: a division takes longer.

    `line` and `page` are the row's numbers on the two axes before the last; `index` is the next
    row's first element.
    """
    line += 1
    at += view[STRIDE + RANK - 2]
    if line < view[SHAPE + RANK - 2]:
        return at, line, page
    at += view[STRIDE + RANK - 3] - line * view[STRIDE + RANK - 2]
    page += 1
    if page < view[SHAPE + RANK - 3]:
        return at, 0, page
    return _place(view, index), 0, 0


@compiled(is_part=True)
def _start(view: Any, index: int) -> Any:
    """The place of an element's row, how far in the row the element is, and the row's numbers."""
    if index == 0:
        return 0, 0, 0, 0
    size, lines = view[SHAPE + RANK - 1], view[SHAPE + RANK - 2]
    row_of = index // size
    within = index - row_of * size
    page_of = row_of // lines
    page = page_of % view[SHAPE + RANK - 3]
    return _place(view, index - within), within, row_of - page_of * lines, page


@compiled(is_part=True)
def _load(view: Any, base: int, start: int, to: int, count: int) -> None:
    """`count` elements from `start` on of a view of any strides."""
    inner, step, is_half = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1], view[IS_HALF]
    size, done = 4 - 2 * is_half, 0
    at, within, line, page = _start(view, start)
    while done < count:
        run = min(inner - within, count - done)
        first = base + size * (at + within * step)
        if step == 0 and not is_half:
            kernels.fill(to + 4 * done, floats_at(first)[0], run)
        else:
            kernels.copy(first, is_half, step, to + 4 * done, run)
        done += run
        within = 0
        if done < count:
            at, line, page = _next(view, start + done, at, line, page)


@compiled(is_part=True)
def _store(view: Any, base: int, start: int, x: int, count: int) -> None:
    """Write to the elements from `start` on of a view of any strides, or of a packed fp16 one."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done = 0
    at, within, line, page = _start(view, start)
    while done < count:
        run = min(inner - within, count - done)
        first = at + within * step
        if view[IS_HALF]:
            kernels.narrow(x + 4 * done, base + 2 * first, run)
        else:
            kernels.spread(x + 4 * done, base + 4 * first, step, run)
        done += run
        within = 0
        if done < count:
            at, line, page = _next(view, start + done, at, line, page)


@native(COMMAND, sources=SOURCES)
def tape(
    command: int, views: int, steps_at: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """All steps on one block after the other."""
    c = longs_at(command)
    at, stop = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    is_first = True
    while at < stop:
        count = min(BLOCK, stop - at)
        for i in range(c[STEP], c[STEP] + c[STEPS]):
            s = longs_at(steps_at + 8 * STEP_COLUMNS * i)
            do = s[DO]
            if do in (_LOAD, _FILL):
                if do == _LOAD or is_first:
                    to, start = registers + s[TO] * REGISTER_BYTES, at if do == _LOAD else 0
                    _load(view_of(views, s[X]), place_of(views, bases, s[X]), start, to, count)
                continue
            x = _operand(views, bases, registers, s[X], at)
            if do == _STORE:
                _store(view_of(views, s[TO]), place_of(views, bases, s[TO]), at, x, count)
                continue
            y = _operand(views, bases, registers, s[Y], at)
            w = _operand(views, bases, registers, s[Z], at)
            z = _operand(views, bases, registers, s[TO], at)
            apply(do, x, y, w, z, from_bits(s[P]), from_bits(s[Q]), count)
            if s[STEP_ROUNDS]:
                kernels.round_halves(z, count)
        at += count
        is_first = False
