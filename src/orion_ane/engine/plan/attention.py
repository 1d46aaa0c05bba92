"""The attention of one token: scores, their softmax and the values that it mixes.

Keys and values of earlier positions lie position by position, so that what is read is in one line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, kernels, layout, positions, steps, vectors
from orion_ane.engine.plan.code import quotient
from orion_ane.engine.plan.kernels import floats, place_of, rounded, row, settle, table
from orion_ane.engine.plan.layout import COMMAND, VIEW_COLUMNS
from orion_ane.engine.plan.positions import mix_floats, mix_halves, score_floats, score_halves
from orion_ane.engine.plan.steps import exp_of
from orion_ane.engine.plan.vectors import dot_floats, largest_of, sum_of
from orion_ane.types import Array

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
STEPS = int(layout.At.STEPS)
A, B, C, D = (int(layout.At[name]) for name in "ABCD")
IS_HALF = int(layout.Of.IS_HALF)
SHAPE, STRIDE = (int(at) + layout.RANK - 3 for at in (layout.Of.SHAPE, layout.Of.STRIDE))
COLUMNS = layout.COLUMNS
_BLOCK = 16  # positions of all heads that are read, while the next are asked for

SOURCES = (code, kernels, lanes, layout, positions, steps, vectors)


@compiled(is_part=True)
def _line(room: int) -> int:
    """Bytes of a row of scores: whole blocks."""
    return 4 * ((room + COLUMNS - 1) // COLUMNS * COLUMNS)


@compiled(is_part=True)
def _strides(view: Array) -> Any:
    """Bytes from a head to the next, and from a position, of a cache [K,B,C]."""
    size = 4 - 2 * view[IS_HALF]
    return size * view[STRIDE], size * view[STRIDE + 1]


@compiled(is_part=True)
def _softmax(z: int, n: int, own: Any, rounds: int) -> Any:
    """n scores and one's own to their exponentials; one's own, and the sum of all."""
    scores = floats(z, n)
    top = largest_of(z, n)
    top = top if (top > own) | (top != top) else own  # noqa: PLR0124 - NaN is no score's like
    kernels.add_number(scores, -top)
    settle(scores, rounds)
    kernels.exp_each(scores)
    settle(scores, rounds)
    # Zeros up to whole blocks: so the sum does not depend on how many of them are counted.
    whole = (n + COLUMNS - 1) // COLUMNS * COLUMNS
    kernels.fill(floats(z + 4 * n, whole - n), np.float32(0))
    own = rounded(exp_of(rounded(own - top, rounds)), rounds)
    return own, rounded(rounded(sum_of(z, whole), rounds) + own, rounds)


@compiled(is_part=True)
def _finish(y: Array, v: Array, own: Any, total: Any, rounds: int) -> None:
    """What was mixed, with one's own value, over the sum."""
    settle(y, rounds)
    for i in range(y.shape[0]):
        mixed = rounded(y[i] + rounded(own * v[i], rounds), rounds)
        y[i] = rounded(quotient(mixed, total), rounds)


@compiled(is_part=True)
def _score(
    view: Array, keys: int, n: int, q: int, z: int, heads: tuple[int, int, int, int]
) -> None:
    """Rows of scores from z on: keys times q, for some heads and their groups of queries."""
    (first, last, groups, depth), line = heads, _line(view[SHAPE + 1])
    is_half, count = view[IS_HALF], view[SHAPE]
    of_head, step = _strides(view)
    for t in range(0, n, _BLOCK):
        some = min(_BLOCK, n - t)
        for h in range(first, last):
            at = keys + t * step + h * of_head
            for g in range(groups):
                x = q + 4 * depth * (g * count + h)
                to = z + ((h - first) * groups + g) * line + 4 * t
                if is_half:
                    score_halves(at, x, to, some, step, depth, _BLOCK * step)
                else:
                    score_floats(at, x, to, some, step, depth, _BLOCK * step)


@compiled(is_part=True)
def _mix(
    view: Array, values: int, n: int, z: int, y: int, heads: tuple[int, int, int, int]
) -> None:
    """Add values times what the rows from z on came to, for the same heads."""
    (first, last, groups, depth), line = heads, _line(view[SHAPE + 1])
    is_half, count = view[IS_HALF], view[SHAPE]
    of_head, step = _strides(view)
    for t in range(0, n, _BLOCK):
        some = min(_BLOCK, n - t)
        for h in range(first, last):
            at = values + t * step + h * of_head
            for g in range(groups):
                to = y + 4 * depth * (g * count + h)
                x = z + ((h - first) * groups + g) * line + 4 * t
                if is_half:
                    mix_halves(at, x, to, some, step, depth, _BLOCK * step)
                else:
                    mix_floats(at, x, to, some, step, depth, _BLOCK * step)


@native(COMMAND, sources=SOURCES)
def attend(
    command: int, views_at: int, _steps: int, bases_at: int, registers: int, begin: int, end: int
) -> None:
    """y [A,K,C] of q [A,K,C] over a cache of B positions and one's own; a unit is a head of K.

    The views: q, the cache's keys and values [K,B,C] and mask, one's own k and v [K,C] and mask.
    """
    c, views, bases = row(command), table(views_at, VIEW_COLUMNS), row(bases_at)
    at, rounds, count, groups, depth = c[VIEW], c[ROUNDS], c[TOTAL], c[A], c[C]
    first, last = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    q, y = place_of(views, bases, at), place_of(views, bases, at + 7)
    k, v = place_of(views, bases, at + 4), place_of(views, bases, at + 5)
    n = c[B]
    if c[D] and c[STEPS]:
        n = min(n, max(bases[c[D]], bases[c[STEPS]]))
    line = _line(c[B])
    rest, heads = registers + (last - first) * groups * line, (first, last, groups, depth)
    masks = floats(rest, n)
    kernels.read(place_of(views, bases, at + 3), views[at + 3, IS_HALF], masks)
    own_mask = floats(rest + line, 1)
    kernels.read(place_of(views, bases, at + 6), views[at + 6, IS_HALF], own_mask)

    _score(views[at + 1], place_of(views, bases, at + 1), n, q, registers, heads)
    for h in range(first, last):
        for g in range(groups):
            number = (h - first) * groups + g
            z, head = registers + number * line, 4 * depth * (g * count + h)
            scores = floats(z, n)
            settle(scores, rounds)
            kernels.add_to(scores, masks)
            settle(scores, rounds)
            own = rounded(dot_floats(k + 4 * depth * h, q + head, depth), rounds)
            own = rounded(own + own_mask[0], rounds)
            ends = floats(rest + line + 4 + 8 * number, 2)
            ends[0], ends[1] = _softmax(z, n, own, rounds)
            kernels.fill(floats(y + head, depth), np.float32(0))
    _mix(views[at + 2], place_of(views, bases, at + 2), n, registers, y, heads)
    for h in range(first, last):
        for g in range(groups):
            ends = floats(rest + line + 4 + 8 * ((h - first) * groups + g), 2)
            found = floats(y + 4 * depth * (g * count + h), depth)
            _finish(found, floats(v + 4 * depth * h, depth), ends[0], ends[1], rounds)
