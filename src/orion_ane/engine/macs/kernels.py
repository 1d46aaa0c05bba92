"""The ANE's multiply-accumulate, exactly, as one fused multiply-add a product.

The rule (ane-numerics, section 2) is a sum of integers: each product w·x is rounded to a multiple
of 2^-16, ties away from zero, and these are added without error.  Three facts let floating-point
hardware do that in one instruction a product:

1. Around 192 the fp32 numbers are the multiples of 2^-16, since 2^7 ≤ 192 ± 64 ≤ 2^8.  A fused
   multiply-add rounds once; so with a `total` of 192 + (a multiple of 2^-16), `fma(w, x, total)`
   is the exact product, rounded to that grid and added without error, as long as totals stay
   within 192 ± 64.  In fp64, 1.5·2^36 does the same for sums within ±2^35.
2. Hardware rounds ties to even.  So one operand is nudged to its neighbour away from zero.  fp16
   values have 11 bits and their products 22, so a product grows by less than its distance from
   any tie that it is not on; and a tie comes to lie just beyond, where it is rounded away.
3. A product counts as 0 where E(w) + E(x) < -16, E being the exponent, but at least -14: where |w|
   is below the threshold 2^(-16 - E(x)), or never where E(x) ≥ -2.

Which way a sum is taken is decided by bounds on Σ|w||x| and does not show, for all are exact:
fp32 totals, fp64 totals, and a walk in order where a partial sum might reach the ceiling.
"""

from __future__ import annotations

from functools import partial
from math import copysign, inf
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from orion_ane.engine import jit, lanes
from orion_ane.engine.macs import vectors
from orion_ane.engine.macs.vectors import (
    DEPTH,
    LANES,
    PANEL,
    PANEL_64,
    ROWS,
    ROWS_64,
    bits_of,
    dot_32,
    dot_64,
    from_bits,
    half_of,
    measure_row,
    pack_32,
    pack_64,
    tile_32,
    tile_64,
    value_of,
)
from orion_ane.types import Array

PANEL_FLOATS = 160 * 1024  # of x, kept in cache while the rows pass
CEILING = 2.0**15
SINGLE_WINDOW, DOUBLE_WINDOW = 60.0, 2.0**34  # short of 64 and 2^35, since bounds are rounded
SLACK, ROOM = 1.001, 2.0**-17  # what rounding may add to a bound, and to the size of a product

compiled = partial(jit.compiled, sources=(lanes, vectors))

_MANTISSA = (1 << 52) - 1
_BELOW_HALF = (1 << 42) - 1  # bits of a double below the eleventh of its significand


@compiled(is_part=True)
def _away(value: Any, ceiling: Any) -> Any:
    """Rounded to 11 significant bits, ties away from zero; infinite from the ceiling on."""
    power = from_bits(bits_of(value) & ~_MANTISSA)  # signed; 0 for 0
    rounded = from_bits(bits_of(value + power * 2.0**-11) & ~_BELOW_HALF)
    if abs(rounded) >= ceiling:
        return inf if value > 0 else -inf
    return rounded


@compiled(is_part=True)
def _exponent(value: Any) -> Any:
    return max((bits_of(value) >> 52 & 0x7FF) - 1023, -14)


@compiled(is_part=True)
def _is_finite(half: Any) -> Any:
    return half & 0x7FFF < 0x7C00


def _result(value: Any, of: Any) -> Any:
    """A sum as an element of the array `of`: itself, or the bits of the fp16 value."""
    raise NotImplementedError


@overload(_result, strict=False)
def _result_for(value: Any, of: Any) -> Any:  # noqa: ARG001 - numba passes what `_result` takes
    if of.dtype == types.float64:
        return lambda value, of: value  # noqa: ARG005 - likewise
    return lambda value, of: half_of(np.float32(_away(value, CEILING)))  # noqa: ARG005 - likewise


# numba's own sums, maxima and fills of arrays take seconds to compile


@compiled(is_part=True)
def _largest(x: Array) -> Any:
    top = x[0]
    for i in range(x.shape[0]):
        top = x[i] if (x[i] > top) | (x[i] != x[i]) else top
    return top


@compiled(is_part=True)
def _farthest(x: Array) -> Any:
    """The largest magnitude."""
    top = abs(x[0])
    for i in range(x.shape[0]):
        size = abs(x[i])
        top = size if (size > top) | (size != size) else top  # noqa: PLR0124 - NaN stays
    return top


@compiled(is_part=True)
def _fill(x: Array, value: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = value


class Left(NamedTuple):
    """A left side w [O,K], and what `measure` says of it."""

    bits: Array
    """[O,K] of uint16."""
    reach: Array
    """[O, K / DEPTH]: Σ|w| of each part of a row."""
    bound: Array
    """[O,2]: Σ|w| of a row, and the largest Σ|w| of a total of the thin product."""
    odd: Array
    """[O]: whether a number is not finite.  Such count as 0 in reach, and spoil bound."""


class Panels(NamedTuple):
    """A right side x [K,S] as `pack_panels` prepares it for `wide_rows`."""

    bits: Array
    """[K,S] of uint16."""
    packed: Array
    """[panels · K · PANEL]: values, PANEL columns together, padded with zeros."""
    top: Array
    """[panels, K / DEPTH]: the largest magnitude of each part of a panel."""
    odd: Array
    """[S]: whether a number is not finite.  Such count as 0 in the others."""


@compiled()
def measure(left: Left) -> None:
    """Fill in what is to be known of left.bits."""
    w, reach, bound, odd = left
    inner, parts = w.shape[1], reach.shape[1]
    for o in range(w.shape[0]):
        bound[o, 1] = measure_row(w, o * inner, inner, reach, o * parts)
        total = np.float32(0)
        for part in range(parts):
            total += reach[o, part]
        bound[o, 0] = total
        odd[o] = not bound[o, 0] < inf
        if odd[o]:
            _fill(reach[o], np.float32(0))
            for k in range(inner):
                if _is_finite(w[o, k]):
                    reach[o, k // DEPTH] += abs(value_of(w[o, k]))


@compiled()
def right_side(x: Array, longest: Any) -> Any:
    """A right side [S,K] for `thin_rows`: values and thresholds, in fp32, and in fp64 where needed.

    Then the largest magnitudes, and whether a number is not finite, which counts as 0.
    """
    columns, inner = x.shape
    padded = (inner + LANES - 1) // LANES * LANES
    single, peak = np.zeros((2, columns, padded), np.float32), np.zeros(columns)
    odd = np.zeros(columns, np.bool_)
    for s in range(columns):
        at = s * padded
        pack_32(x, s * inner, inner, single, at, at + columns * padded)
        for k in range(inner):
            if _is_finite(x[s, k]):
                peak[s] = max(peak[s], abs(value_of(x[s, k])) * SLACK)
            else:
                odd[s] = True
    is_near = longest * _largest(peak) + inner * ROOM < SINGLE_WINDOW
    double = np.zeros((2, 0 if is_near else columns, padded))
    for s in range(double.shape[1]):
        at = s * padded
        pack_64(x, s * inner, inner, double, at, at + columns * padded)
    return single, double, peak, odd


@compiled(is_part=True)
def thin_rows(
    left: Any, right: Any, y: Array, todo: Array, sticky: Any, begin: Any, end: Any
) -> Any:
    """Some rows of y [O,S] = w xᵀ by the rule: fp16 bits, or in an fp64 y the sums.

    `right` is x as `right_side` makes it; todo [O,S] becomes what bounds cannot clear, and `mend`
    must.  Returns how much that is.
    """
    w, _, bound, _ = left
    single, double, peak, odd = right
    inner, columns, padded = w.shape[1], single.shape[1], single.shape[2]
    room, length, left_over = inner * ROOM, columns * padded, 0
    for o in range(begin, end):
        for s in range(columns):
            at = s * padded
            if double.shape[1] == 0 or bound[o, 1] * peak[s] + room < SINGLE_WINDOW:
                total = dot_32(w, o * inner, inner, single, at, at + length)
            else:
                total = dot_64(w, o * inner, inner, double, at, at + length)
            farthest = bound[o, 0] * peak[s] + room
            is_clear = not odd[s] and farthest < DOUBLE_WINDOW
            if sticky:  # a path to `total` that long passes no more than the mean of both
                is_clear &= farthest + abs(total) < 2 * CEILING
            todo[o, s] = not is_clear
            left_over += not is_clear
            y[o, s] = _result(total, y)
    return left_over


@compiled(is_part=True)
def _pack_line(halves: Array, values: Array, largest: Array) -> None:
    for j in range(values.shape[0]):
        values[j] = value_of(halves[j])
        largest[j] = max(largest[j], halves[j] & np.uint16(0x7FFF))


@compiled()
def pack_panels(panels: Panels, begin: int, end: int) -> None:
    """Fill in the rest of some panels, which is 0 yet, from their bits."""
    x, packed, top, odd = panels
    inner, columns = x.shape
    largest = np.empty(PANEL, np.uint16)
    for p in range(begin, end):
        first, width = p * PANEL, min(PANEL, columns - p * PANEL)
        for part in range(top.shape[1]):
            _fill(largest, np.uint16(0))
            ks = range(part * DEPTH, min((part + 1) * DEPTH, inner))
            for k in ks:
                at = (p * inner + k) * PANEL
                _pack_line(x[k, first : first + width], packed[at : at + width], largest)
            highest = _largest(largest)
            top[p, part] = value_of(highest)
            if _is_finite(highest):
                continue
            top[p, part] = 0
            for k in ks:
                for j in range(width):
                    if _is_finite(x[k, first + j]):
                        top[p, part] = max(top[p, part], abs(value_of(x[k, first + j])))
                    else:
                        packed[(p * inner + k) * PANEL + j] = 0
                        odd[first + j] = True


@compiled()
def wide_rows(
    left: Left, right: Panels, y: Array, todo: Array, sticky: bool, begin: int, end: int
) -> None:
    """Rows ROWS · begin to ROWS · end of y [O,S] = w x by the rule; y and todo as in `thin`."""
    w, inner, panels, parts = left.bits, left.bits.shape[1], right.top.shape[0], right.top.shape[1]
    blocks = max(1, inner * PANEL * panels // PANEL_FLOATS)
    size = (panels + blocks - 1) // blocks
    limit = CEILING if sticky else DOUBLE_WINDOW
    c, path, is_far = np.empty((size, ROWS * PANEL)), np.empty(size), np.empty(size, np.bool_)
    single, double, t_at = (
        np.zeros(2 * ROWS * DEPTH, np.float32),
        np.zeros(2 * ROWS * DEPTH),
        ROWS * DEPTH,
    )
    for first in range(0, panels, size):
        last = min(first + size, panels)
        for o in range(begin * ROWS, min(end * ROWS, w.shape[0]), ROWS):
            rows = min(ROWS, w.shape[0] - o)
            _fill(path, 0.0)
            _fill(is_far, False)
            for p in range(size):
                _fill(c[p], 0.0)
            for part in range(parts):
                k = part * DEPTH
                n = min(DEPTH, inner - k)
                reach = 0.0
                for r in range(rows):
                    reach = max(reach, left.reach[o + r, part] * SLACK)
                    pack_32(w, (o + r) * inner + k, n, single, r * DEPTH, t_at + r * DEPTH)
                has_64 = False
                for p in range(first, last):
                    at, x_at = (p - first) * ROWS * PANEL, (p * inner + k) * PANEL
                    length = reach * right.top[p, part] + n * ROOM
                    path[p - first] += length
                    if not path[p - first] < limit:  # as the crow flies it may be less
                        path[p - first] = _farthest(c[p - first]) + length
                        is_far[p - first] |= not path[p - first] < limit
                    if length < SINGLE_WINDOW:
                        tile_32(single, 0, t_at, right.packed, x_at, n, c, at)
                        continue
                    for r in range(0 if has_64 else rows):
                        pack_64(w, (o + r) * inner + k, n, double, r * DEPTH, t_at + r * DEPTH)
                    has_64 = True
                    for r in range(0, ROWS, ROWS_64):
                        for s in range(0, PANEL, PANEL_64):
                            w_at, c_at = r * DEPTH, at + r * PANEL + s
                            tile_64(double, w_at, t_at + w_at, right.packed, x_at + s, n, c, c_at)
            for p in range(first, last):
                _finish(left, right, y, todo, o, p, c[p - first], is_far[p - first])


@compiled(is_part=True)
def _finish(
    left: Any, right: Any, y: Array, todo: Array, o: Any, p: Any, c: Array, is_far: Any
) -> None:
    """Write the sums of ROWS rows and a panel."""
    odd = right.odd[p * PANEL : (p + 1) * PANEL]
    for r in range(min(ROWS, y.shape[0] - o)):
        sums = c[r * PANEL : (r + 1) * PANEL]
        line = y[o + r, p * PANEL : (p + 1) * PANEL]
        rest = todo[o + r, p * PANEL : (p + 1) * PANEL]
        unclear = is_far or left.odd[o + r]
        for j in range(line.shape[0]):
            line[j] = _result(sums[j], y)
            rest[j] = unclear or odd[j]


@compiled(is_part=True)
def _infinite(w: Array, x: Array) -> Any:
    """Whether any product is infinite, and what such products alone sum to.

    NaN counts as +inf, 0·inf as 0, and inf - inf as 0.
    """
    up = down = False
    for k in range(w.shape[0]):
        a, b = w[k], x[k]
        if (_is_finite(a) and _is_finite(b)) or a & 0x7FFF == 0 or b & 0x7FFF == 0:
            continue
        if (value_of(a) < 0) != (value_of(b) < 0):  # no NaN is below 0
            down = True
        else:
            up = True
    return up or down, 0.0 if up == down else inf if up else -inf


@compiled(is_part=True)
def _walk(w: Array, x: Array, sticky: Any) -> Any:
    """A sum in order and in integers, whatever its size; what is not finite counts as 0.

    Where `sticky`, it is infinite from the first partial sum that reaches the ceiling.
    """
    # In units of 2^-16; high and low apart, so that neither overflows.
    high = low = total = np.int64(0)
    for k in range(w.shape[0]):
        if not (_is_finite(w[k]) and _is_finite(x[k])):
            continue
        a, b = np.float64(value_of(w[k])), np.float64(value_of(x[k]))
        if _exponent(a) + _exponent(b) < -16:
            continue
        units = np.int64(copysign(np.floor(abs(a * b) * 65536.0 + 0.5), a * b))
        high += units >> 20
        low += units & 0xFFFFF
        total = (high << 20) + low
        if sticky and abs(total) >= 1 << 31:
            break
    if sticky and abs(total) >= 1 << 31:
        return inf if total > 0 else -inf
    return (high * 2.0**20 + low) * 2.0**-16


@compiled(is_part=True, fastmath=frozenset({"reassoc"}))
def _length(w: Array, x: Array) -> Any:
    """Σ|w||x|, which no partial sum passes; rounded, and not finite where a number is not."""
    total = np.float32(0)
    for k in range(w.shape[0]):
        total += abs(value_of(w[k]) * value_of(x[k]))
    return total


@compiled()
def mend(w: Array, x: Array, y: Array, todo: Array, sticky: bool) -> None:
    """Do what is left to do: sums that may reach the ceiling on their way, and infinite products.

    w: [O,K], x: [S,K], as bits.
    """
    limit = CEILING if sticky else DOUBLE_WINDOW
    room = w.shape[1] * ROOM
    for o in range(y.shape[0]):
        for s in range(y.shape[1]):
            if not todo[o, s] or _length(w[o], x[s]) * SLACK + room < limit:
                continue
            found, total = _infinite(w[o], x[s])
            if not found:
                total = _walk(w[o], x[s], sticky)
            y[o, s] = _result(total, y)
