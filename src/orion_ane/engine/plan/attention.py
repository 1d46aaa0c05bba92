"""The attention of one token: scores, their softmax and the values that it mixes.

Keys and values of earlier positions lie position by position, so that what is read is in one line.
"""

from __future__ import annotations

from typing import Any

from numba import types

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, intrinsic, native
from orion_ane.engine.lanes import SINGLE, Vectors, over
from orion_ane.engine.plan import code, kernels, layout, positions, steps, vectors
from orion_ane.engine.plan.code import floats_at, longs_at, pointer_at
from orion_ane.engine.plan.kernels import copy, place_of, rounded, settle, view_of
from orion_ane.engine.plan.layout import COMMAND
from orion_ane.engine.plan.positions import mix_floats, mix_halves, score_floats, score_halves
from orion_ane.engine.plan.steps import exp_of
from orion_ane.engine.plan.vectors import dot_floats, largest_of, sum_of

Shape = tuple[int, int, int, int, int]
Heads = tuple[int, int, int, int]

# Plain numbers: numba compiles them in.
SIZE, TOTAL, VIEW, ROUNDS = (int(layout.At[name]) for name in ("SIZE", "TOTAL", "VIEW", "ROUNDS"))
STEPS = int(layout.At.STEPS)
A, B, C, D = (int(layout.At[name]) for name in "ABCD")
IS_HALF = int(layout.Of.IS_HALF)
SHAPE, STRIDE = (int(at) + layout.RANK - 3 for at in (layout.Of.SHAPE, layout.Of.STRIDE))
COLUMNS = layout.COLUMNS
_BLOCK = 16  # positions that are read of one head, then of the next
_AHEAD = 6  # positions on, which are asked for: with 16 a token took 1 % longer, with 4 as long

SOURCES = (code, kernels, lanes, layout, positions, steps, vectors)


@compiled(is_part=True)
def _line(room: int) -> int:
    """Bytes of a row of scores: whole blocks."""
    return 4 * ((room + COLUMNS - 1) // COLUMNS * COLUMNS)


@compiled(is_part=True)
def _softmax(z: int, n: int, own: Any, rounds: int) -> Any:
    """n scores and one's own to their exponentials; one's own, and the sum of all."""
    top = largest_of(z, n)
    top = top if (top > own) | (top != top) else own  # noqa: PLR0124 - NaN is no score's like
    kernels.add_number(z, -top, n)
    settle(z, n, rounds)
    kernels.exp_each(z, n)
    settle(z, n, rounds)
    # Zeros up to whole blocks: so the sum does not depend on how many of them are counted.
    whole = (n + COLUMNS - 1) // COLUMNS * COLUMNS
    kernels.fill(z + 4 * n, 0.0, whole - n)
    own = rounded(exp_of(rounded(own - top, rounds)), rounds)
    return own, rounded(rounded(sum_of(z, whole), rounds) + own, rounds)


@intrinsic
def _finish(_context: Any, _y: Any, _v: Any, _own: Any, _total: Any, _n: Any, _rounds: Any) -> Any:
    """What was mixed, y [n], with one's own value, v [n], over the sum."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        y, v, (own, total, n, rounds) = *(pointer_at(b, at, SINGLE) for at in args[:2]), args[2:]

        def write(lanes: Vectors, k: Any) -> None:
            def settled(x: Any) -> Any:
                return kernels.rounded_if(b, x, rounds)

            added = settled(b.fmul(lanes.splat(own), lanes.load(v, k)))
            mixed = settled(b.fadd(settled(lanes.load(y, k)), added))
            lanes.store(settled(b.fdiv(mixed, lanes.splat(total))), y, k)

        over(b, n, write)
        return context.get_dummy_value()

    at, number = types.int64, types.float32
    return types.void(at, at, number, number, at, at), code


@compiled(is_part=True)
def _score(keys: int, n: int, q: int, z: int, shape: Shape, heads: Heads) -> None:
    """Rows of scores from z on: keys times q, for some heads and their groups of queries."""
    (first, last, groups, depth), (is_half, count, of_head, step, line) = heads, shape
    for t in range(0, n, _BLOCK):
        some = min(_BLOCK, n - t)
        for h in range(first, last):
            at = keys + t * step + h * of_head
            for g in range(groups):
                x = q + 4 * depth * (g * count + h)
                to = z + ((h - first) * groups + g) * line + 4 * t
                if is_half:
                    score_halves(at, x, to, some, step, depth, _AHEAD * step)
                else:
                    score_floats(at, x, to, some, step, depth, _AHEAD * step)


@compiled(is_part=True)
def _mix(values: int, n: int, z: int, y: int, shape: Shape, heads: Heads) -> None:
    """Add values times what the rows from z on came to, for the same heads."""
    (first, last, groups, depth), (is_half, count, of_head, step, line) = heads, shape
    for t in range(0, n, _BLOCK):
        some = min(_BLOCK, n - t)
        for h in range(first, last):
            at = values + t * step + h * of_head
            for g in range(groups):
                to = y + 4 * depth * (g * count + h)
                x = z + ((h - first) * groups + g) * line + 4 * t
                if is_half:
                    mix_halves(at, x, to, some, step, depth, _AHEAD * step)
                else:
                    mix_floats(at, x, to, some, step, depth, _AHEAD * step)


@compiled(is_part=True)
def _shape(views: int, at: int) -> Shape:
    """A cache [K,B,C]: whether it is fp16, K, bytes from a head and a position to the next."""
    view = view_of(views, at)
    size = 4 - 2 * view[IS_HALF]
    line = _line(view[SHAPE + 1])
    return view[IS_HALF], view[SHAPE], size * view[STRIDE], size * view[STRIDE + 1], line


@native(COMMAND, sources=SOURCES)
def attend(
    command: int, views: int, _steps: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """y [A,K,C] of q [A,K,C] over a cache of B positions and one's own; a unit is a head of K.

    The views: q, the cache's keys and values [K,B,C] and mask, one's own k and v [K,C] and mask.
    """
    c = longs_at(command)
    at, rounds, count, groups, depth = c[VIEW], c[ROUNDS], c[TOTAL], c[A], c[C]
    first, last = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    q, y = place_of(views, bases, at), place_of(views, bases, at + 7)
    k, v = place_of(views, bases, at + 4), place_of(views, bases, at + 5)
    n = c[B]
    if c[D] and c[STEPS]:
        filled = longs_at(bases)
        n = min(n, max(filled[c[D]], filled[c[STEPS]]))
    line = _line(c[B])
    masks, heads = registers + (last - first) * groups * line, (first, last, groups, depth)
    own_mask = masks + line
    copy(place_of(views, bases, at + 3), view_of(views, at + 3)[IS_HALF], 1, masks, n)
    copy(place_of(views, bases, at + 6), view_of(views, at + 6)[IS_HALF], 1, own_mask, 1)

    _score(place_of(views, bases, at + 1), n, q, registers, _shape(views, at + 1), heads)
    for h in range(first, last):
        for g in range(groups):
            number = (h - first) * groups + g
            z, head = registers + number * line, 4 * depth * (g * count + h)
            settle(z, n, rounds)
            kernels.add_to(z, masks, n)
            settle(z, n, rounds)
            own = rounded(dot_floats(k + 4 * depth * h, q + head, depth), rounds)
            own = rounded(own + floats_at(own_mask)[0], rounds)
            ends = floats_at(own_mask + 4 + 8 * number)
            ends[0], ends[1] = _softmax(z, n, own, rounds)
            kernels.fill(y + head, 0.0, depth)
    _mix(place_of(views, bases, at + 2), n, registers, y, _shape(views, at + 2), heads)
    for h in range(first, last):
        for g in range(groups):
            ends = floats_at(own_mask + 4 + 8 * ((h - first) * groups + g))
            head = 4 * depth * (g * count + h)
            _finish(y + head, v + 4 * depth * h, ends[0], ends[1], depth, rounds)
