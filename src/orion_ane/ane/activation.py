"""Activations as the ANE has them: 33 knots, joined by straight lines.

The form is reported (ane-numerics, section 5); the knots of the device are not published.  These
are ours, and err no more than is reported of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import erf
from types import MappingProxyType

import numpy as np

from orion_ane.ane.rounding import away
from orion_ane.errors import ConfigError
from orion_ane.types import Array

KNOTS = 33


@dataclass(frozen=True)
class Table:
    """A function of fp16 numbers, as knots at equal distances from `low` to `high`.

    Below and above, the line `low_tail` or `high_tail` goes on: (value at 0, slope).  An `odd`
    table holds the magnitudes' side alone.
    """

    name: str
    low: float
    high: float
    knots: tuple[float, ...]
    low_tail: tuple[float, float]
    high_tail: tuple[float, float]
    is_odd: bool
    error: float | None
    """The worst error that is reported of the device, where one is."""

    def __call__(self, x: Array) -> Array:
        """The activation of fp16 numbers, or of what counts as such; NaN counts as +inf."""
        value = np.nan_to_num(np.asarray(x, np.float64), nan=np.inf, posinf=np.inf, neginf=-np.inf)
        side = np.abs(value) if self.is_odd else value
        inside = np.clip(side, self.low, self.high)
        place = (inside - self.low) * ((KNOTS - 1) / (self.high - self.low))
        index = np.minimum(place.astype(np.int64), KNOTS - 2)
        knots = np.array(self.knots)
        line = knots[index] + (place - index) * (knots[index + 1] - knots[index])
        line = np.where(side < self.low, _tail(self.low_tail, side), line)
        line = np.where(side > self.high, _tail(self.high_tail, side), line)
        return away(np.copysign(line, value) if self.is_odd else line)

    @cached_property
    def by_bits(self) -> Array:
        """The result for each of the 65,536 fp16 bit patterns, in their order."""
        return self(np.arange(1 << 16, dtype=np.uint16).view(np.float16))


def activation_table(name: str) -> Table:
    """The table of `sigmoid`, `tanh`, `gelu` or `silu`.

    Raises:
        ConfigError: no such table.
    """
    if name not in TABLES:
        raise ConfigError("activation", "no such table", got=name, want=sorted(TABLES))
    return TABLES[name]


def _tail(line: tuple[float, float], x: Array) -> Array:
    at_zero, slope = line
    return at_zero + slope * x if slope else np.full_like(x, at_zero)


def _knots(function: Callable[[float], float], low: float, high: float, share: float) -> Array:
    """Knots of the function, moved by a share of what a line misses in the middle of a segment.

    Half of it makes the worst error least: knots are then as wrong as middles.
    """
    places = np.linspace(low, high, KNOTS)
    exact = np.array([function(place) for place in places])
    middles = np.array([function(place) for place in (places[1:] + places[:-1]) / 2])
    missed = middles - (exact[1:] + exact[:-1]) / 2
    around = (np.append(missed, missed[-1]) + np.insert(missed, 0, missed[0])) / 2
    return away(exact + share * around)


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def _gelu(x: float) -> float:
    return x * (1 + erf(x / 2**0.5)) / 2


def _silu(x: float) -> float:
    return x * _sigmoid(x)


def _tables() -> Mapping[str, Table]:
    sigmoid = tuple(map(float, _knots(_sigmoid, -9.938, 8.320, 0.5)))
    # Over both signs, 32 segments cannot come within .0017; over one they can.  Of infinity, and so
    # of NaN, 1 is reported: so the end knot is.
    tanh = (0.0, *map(float, _knots(np.tanh, 0.0, 4.0, 0.5)[1:-1]), 1.0)
    # This share gives the -.000543 that is reported for gelu(0).
    gelu = tuple(map(float, _knots(_gelu, -4.0, 4.0, 0.0887)))
    # So do this domain and this share the -.001259 that is reported for swish(0).
    silu_low, silu_high = -7.78125, 7.6875
    silu = tuple(map(float, _knots(_silu, silu_low, silu_high, 0.45)))
    return MappingProxyType(
        {
            "sigmoid": Table(
                "sigmoid", -9.938, 8.320, sigmoid, (sigmoid[0], 0), (sigmoid[-1], 0), False, 0.0034
            ),
            "tanh": Table("tanh", 0.0, 4.0, tanh, (tanh[0], 0), (tanh[-1], 0), True, 0.0017),
            "gelu": Table("gelu", -4.0, 4.0, gelu, (0.0, 0), (0.0, 1.0), False, 0.0059),
            "silu": Table("silu", silu_low, silu_high, silu, (0.0, 0), (0.0, 1.0), False, None),
        }
    )


TABLES = _tables()
