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
def _load(view: Array, base: int, start: int, to: Array) -> None:
    """The elements from `start` on of a view of any strides."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done, count = 0, to.shape[0]
    while done < count:
        at = _place(view, start + done)
        run = min(inner - (start + done) % inner, count - done)
        part = to[done : done + run]
        reach = (run - 1) * step + 1
        if view[IS_HALF]:
            found = halves(base + 2 * at, reach)
            kernels.copy(found, step, part)
        else:
            wide = floats(base + 4 * at, reach)
            if step == 0:
                kernels.fill(part, wide[0])
            else:
                kernels.copy(wide, step, part)
        done += run


@compiled(is_part=True)
def _store(view: Array, base: int, start: int, x: Array) -> None:
    """Write to the elements from `start` on of a view of any strides, or of a packed fp16 one."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done, count = 0, x.shape[0]
    while done < count:
        at = _place(view, start + done)
        run = min(inner - (start + done) % inner, count - done)
        part = x[done : done + run]
        reach = (run - 1) * step + 1
        if view[IS_HALF]:
            kernels.narrow(part, halves(base + 2 * at, reach))
        else:
            kernels.spread(part, floats(base + 4 * at, reach), step)
        done += run


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
