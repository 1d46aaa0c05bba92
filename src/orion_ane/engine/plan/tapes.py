"""Tapes: elementwise steps, all of them on one block before the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, steps
from orion_ane.engine.plan.code import from_bits
from orion_ane.engine.plan.kernels import floats, halves, row, table
from orion_ane.engine.plan.layout import (
    BLOCK,
    COMMAND,
    RANK,
    REGISTER_BYTES,
    STEP_COLUMNS,
    VIEW_COLUMNS,
)
from orion_ane.engine.plan.steps import apply
from orion_ane.types import Array

# Plain numbers: numba compiles them in.
SIZE, TOTAL = int(layout.At.SIZE), int(layout.At.TOTAL)
STEP, STEPS = int(layout.At.STEP), int(layout.At.STEPS)
BASE, OFFSET, IS_HALF, SHAPE, STRIDE = map(int, layout.Of)
DO, TO, X, Y, Z, STEP_ROUNDS, P, Q = map(int, layout.In)
_LOAD, _STORE, _FILL = int(layout.Do.LOAD), int(layout.Do.STORE), int(layout.Do.FILL)

SOURCES = (code, kernels, layout, steps)


@compiled(is_part=True)
def _operand(views: Array, bases: Array, registers: int, at: int, start: int) -> Any:
    """Where a block of an operand is: a register, or where a packed view has it."""
    if at >= 0:
        return registers + at * REGISTER_BYTES
    view = -1 - at
    return bases[views[view, BASE]] + views[view, OFFSET] + 4 * start


@compiled(is_part=True)
def _place(view: Array, index: int) -> Any:
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
def _next(view: Array, index: int, at: int, line: int, page: int) -> Any:
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
def _start(view: Array, index: int) -> Any:
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
def _load(view: Array, base: int, start: int, to: Array) -> None:
    """The elements from `start` on of a view of any strides."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done, count = 0, to.shape[0]
    at, within, line, page = _start(view, start)
    while done < count:
        run = min(inner - within, count - done)
        part, first = to[done : done + run], at + within * step
        reach = (run - 1) * step + 1
        if view[IS_HALF]:
            kernels.copy(halves(base + 2 * first, reach), step, part)
        elif step == 0:
            kernels.fill(part, floats(base + 4 * first, 1)[0])
        else:
            kernels.copy(floats(base + 4 * first, reach), step, part)
        done += run
        within = 0
        if done < count:
            at, line, page = _next(view, start + done, at, line, page)


@compiled(is_part=True)
def _store(view: Array, base: int, start: int, x: Array) -> None:
    """Write to the elements from `start` on of a view of any strides, or of a packed fp16 one."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done, count = 0, x.shape[0]
    at, within, line, page = _start(view, start)
    while done < count:
        run = min(inner - within, count - done)
        part, first = x[done : done + run], at + within * step
        reach = (run - 1) * step + 1
        if view[IS_HALF]:
            kernels.narrow(part, halves(base + 2 * first, reach))
        else:
            kernels.spread(part, floats(base + 4 * first, reach), step)
        done += run
        within = 0
        if done < count:
            at, line, page = _next(view, start + done, at, line, page)


@native(COMMAND, sources=SOURCES)
def tape(
    command: int, views_at: int, steps_at: int, bases_at: int, registers: int, begin: int, end: int
) -> None:
    """All steps on one block after the other."""
    c, views, steps = row(command), table(views_at, VIEW_COLUMNS), table(steps_at, STEP_COLUMNS)
    bases = row(bases_at)
    at, stop = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    is_first = True
    while at < stop:
        count = min(BLOCK, stop - at)
        for i in range(c[STEP], c[STEP] + c[STEPS]):
            s = steps[i]
            do = s[DO]
            if do in (_LOAD, _FILL):
                if do == _LOAD or is_first:
                    view = views[s[X]]
                    z = floats(registers + s[TO] * REGISTER_BYTES, count)
                    _load(view, bases[view[BASE]] + view[OFFSET], at if do == _LOAD else 0, z)
                continue
            x = _operand(views, bases, registers, s[X], at)
            if do == _STORE:
                view = views[s[TO]]
                _store(view, bases[view[BASE]] + view[OFFSET], at, floats(x, count))
                continue
            y = _operand(views, bases, registers, s[Y], at)
            w = _operand(views, bases, registers, s[Z], at)
            z_at = _operand(views, bases, registers, s[TO], at)
            apply(do, x, y, w, z_at, from_bits(s[P]), from_bits(s[Q]), count)
            if s[STEP_ROUNDS]:
                kernels.round_halves(floats(z_at, count))
        at += count
        is_first = False
