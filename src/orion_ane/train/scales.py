"""Scales of what flows back: a power of two for each stage in fp16, chosen from two bounds.

A device's sum of products is infinite from 2^15 on, and its products lose their bits below 2^-8
(docs/numerics.md).  Gradients leave a stage in fp32, without its scale, and enter the next with
that one's own; a power of two takes no bit with it, so that scales show in nothing but in what
fp16 keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.train.gradients import Gradients
from orion_ane.train.state import State
from orion_ane.types import Array

PRODUCTS = 2.0**-8
"""What a typical product should come to, at least."""
SUMS = 2.0**15
"""What no value may come to."""
ROOM = 2.0**4
"""How much larger other rows may be than the one that a scale was chosen by."""
NEAR = 2.0
"""A value that is not even so much below `SUMS` halves its stage's scale before the next step."""
LEAST, MOST = 2.0**-24, 2.0**24
AGAIN = 500
"""Good steps in a row after which all scales are chosen anew."""

_SAMPLES = 4096
_INFINITE = 0x7C00  # the bits of fp16's infinity; NaN's are above


@dataclass(frozen=True)
class Extent:
    """What flowed back through a stage, its scale in it.

    Attributes:
        largest: the largest magnitude; infinite where a value is not finite.
        product: the least of its typical products of a weight and a cotangent.
    """

    largest: float
    product: float


def chosen(scale: float, extent: Extent) -> float:
    """The scale for what came to that extent with another scale.

    It lies midway between the one that brings products to `PRODUCTS` and the one that leaves `ROOM`
    below `SUMS`; where both cannot be, the second: a lost product is better than an infinite sum.
    """
    if extent.largest == 0:
        return scale
    if extent.largest == math.inf:
        return LEAST
    up = math.log2(SUMS / ROOM / extent.largest)
    if extent.product == math.inf:  # nothing is learnt here: what passes through has only to fit
        return clamped(scale * 2.0 ** math.floor(min(up, 0.0)))
    need = math.log2(PRODUCTS / extent.product) if extent.product else math.inf
    return clamped(scale * 2.0 ** math.floor(min(up, (up + need) / 2)))


def clamped(scale: float) -> float:
    """Within `LEAST` and `MOST`."""
    return min(max(scale, LEAST), MOST)


def adjust(state: State, found: Gradients, *, is_bad: bool) -> None:
    """Halve what a step showed to be too large (case O09).

    A stage that was the first to be not finite on the way back; every stage where that was on the
    way there, since nothing is known of the way back then; or else each that came near its bound.
    """
    if is_bad and found.bad_back is None:
        state.loss_scale = clamped(state.loss_scale / 2)
        state.scales = {name: clamped(scale / 2) for name, scale in state.scales.items()}
        return
    near = {name for name, value in found.largest.items() if value > SUMS / NEAR}
    for name in {found.bad_back} if is_bad else near:
        if name is not None:
            state.scales[name] = clamped(state.scale(name) / 2)


def largest(array: Array) -> float:
    """The largest magnitude; infinite where a value is not finite."""
    if array.dtype == np.float16:  # magnitudes are in the order of their bits, which are fast
        bits = (array.view(np.uint16) & np.uint16(0x7FFF)).max(initial=0)
        return float(bits.view(np.float16)) if bits < _INFINITE else math.inf
    most = float(np.abs(array).max(initial=0))
    return most if math.isfinite(most) else math.inf


def typical(array: Array) -> float:
    """The root of the mean of squares, of some numbers spread evenly."""
    flat = array.reshape(-1)
    part = flat[:: flat.size // _SAMPLES | 1].astype(np.float64)  # odd: of every lane
    return math.sqrt(float(np.dot(part, part)) / part.size)


def least_product(
    pairs: Iterable[tuple[str, str]], sizes: Mapping[str, float], every: Mapping[str, Array]
) -> float:
    """The least typical product of (weight, cotangent) pairs; infinite where there are none.

    Args:
        pairs: labels of weights, names of cotangents.
        sizes: what the weights typically are, by label.
        every: the cotangents, by name.
    """
    found = (sizes[label] * typical(every[dy]) for label, dy in pairs)
    return min(found, default=math.inf)


def is_power_of_two(scale: float) -> bool:
    """Whether multiplying by the scale and dividing again loses nothing."""
    return math.isfinite(scale) and scale > 0 and math.frexp(scale)[0] == 0.5
