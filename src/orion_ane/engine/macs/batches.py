"""Thin products of many small matrices in one call, straight from values in fp32.

The rule is that of `kernels`, in fp64 alone: a total of 1.5 · 2^36 plus a multiple of 2^-16 takes a
product rounded to that grid, ties to even; and a product that is 2^-42 of itself too large is on no
tie.  That is less than its distance from any that it was not on, as long as it is below 2^25.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from orion_ane.engine import jit, lanes
from orion_ane.engine import kernels as halves
from orion_ane.engine.kernels import _half
from orion_ane.engine.macs import kernels, vectors
from orion_ane.engine.macs.kernels import (
    CEILING,
    ROOM,
    SLACK,
    _away,
    _exponent,
    _fill,
    _infinite,
    _walk,
)
from orion_ane.engine.macs.vectors import from_bits
from orion_ane.types import Array

LANES = 16  # totals side by side, where one sum goes along a row
BASE, NUDGE = 1.5 * 2.0**36, 1 + 2.0**-42

compiled = partial(jit.compiled, sources=(lanes, vectors, kernels, halves))


@compiled(is_part=True)
def _add(w: Array, x: Any, floor: Any, totals: Array, reach: Array) -> None:
    """Add the products of many w with one x to as many totals, and their magnitudes to reach."""
    for i in range(w.shape[0]):
        product = np.float64(w[i]) * x
        product = 0.0 if abs(w[i]) < floor else product
        totals[i] += product
        reach[i] += abs(product)


@compiled(is_part=True)
def _dot(w: Array, x: Array, floors: Array, totals: Array, reach: Array) -> None:
    """Add the products of two rows to LANES totals, and their magnitudes to reach."""
    for k in range(w.shape[0] // LANES * LANES, w.shape[0]):
        product = np.float64(w[k]) * x[k]
        product = 0.0 if abs(w[k]) < floors[k] else product
        totals[0] += product
        reach[0] += abs(product)
    for k in range(0, w.shape[0] // LANES * LANES, LANES):
        for i in range(LANES):
            product = np.float64(w[k + i]) * x[k + i]
            product = 0.0 if abs(w[k + i]) < floors[k + i] else product
            totals[i] += product
            reach[i] += abs(product)


@compiled(is_part=True)
def _walked(w: Array, x: Array, left: Array, right: Array, sticky: Any) -> Any:
    """A sum of any size, infinite factors and all; left and right are room for bits."""
    for k in range(x.shape[0]):
        left[k], right[k] = _half(w[k]), _half(x[k])
    found, total = _infinite(left, right)
    return total if found else _walk(left, right, sticky)


@compiled()
def thin_batch(
    w: Array,
    x: Array,
    y: Array,
    sizes: tuple[int, int, int],
    is_turned: tuple[bool, bool, bool],
    sticky: bool,
) -> None:
    """y [B,O,S] = w [B,O,K] x [B,S,K] transposed, of fp16 values in fp32, all flat; S is small.

    sizes: O, S and K; is_turned: whether the last two axes of w, x and y lie the other way.
    """
    outer, columns, inner = sizes
    w_turned, x_turned, y_turned = is_turned
    width = outer if w_turned else LANES
    totals, reach = np.empty(width), np.empty(width)
    line, nudged, floors = np.empty(inner, np.float32), np.empty(inner), np.empty(inner)
    left, right = np.empty(inner, np.uint16), np.empty(inner, np.uint16)
    room = inner * ROOM
    for row in range(y.shape[0] // outer):
        b, s = row // columns, row % columns
        for k in range(inner):
            value = x[(b * inner + k) * columns + s] if x_turned else x[row * inner + k]
            line[k], nudged[k] = value, np.float64(value) * NUDGE
            power = _exponent(np.float64(value))
            floors[k] = 0.0 if power >= -2 else from_bits((1007 - power) << 52)  # 2^(-16 - power)
        whole = w[b * outer * inner : (b + 1) * outer * inner]
        if w_turned:
            _fill(totals, BASE)
            _fill(reach, 0.0)
            for k in range(inner):
                _add(whole[k * outer : (k + 1) * outer], nudged[k], floors[k], totals, reach)
        for o in range(outer):
            at = o
            factors = whole[o::outer] if w_turned else whole[o * inner : (o + 1) * inner : 1]
            if not w_turned:
                _fill(totals, BASE)
                _fill(reach, 0.0)
                _dot(whole[o * inner : (o + 1) * inner], nudged, floors, totals, reach)
                at = 0
                for i in range(1, LANES):
                    totals[0] += totals[i] - BASE
                    reach[0] += reach[i]
            total = totals[at] - BASE
            if not reach[at] * SLACK + room < CEILING:
                total = _walked(factors, line, left, right, sticky)
            place = row * outer + o if y_turned else (b * outer + o) * columns + s
            y[place] = _away(total, CEILING)
