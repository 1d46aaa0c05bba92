"""How positions become angles: rotary frequencies under each scaling, and the tables of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.types import Array

RopeKind: TypeAlias = Literal["default", "linear", "llama3", "yarn", "factors"]

_LLAMA3 = frozenset({"factor", "low_freq_factor", "high_freq_factor"})
_YARN = frozenset(
    {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
)
_ORIGINAL = "original_max_position_embeddings"
_NEEDED: dict[RopeKind, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": _LLAMA3,
    "yarn": frozenset(),
    "factors": frozenset(),
}
_KNOWN: dict[RopeKind, frozenset[str]] = {
    **_NEEDED,
    "llama3": _LLAMA3 | {_ORIGINAL},
    "yarn": _YARN | {_ORIGINAL},
}
ROPE_KINDS: tuple[RopeKind, ...] = tuple(_NEEDED)


@dataclass(frozen=True)
class Rope:
    """How positions become angles.

    Attributes:
        theta: the base of the geometric series of frequencies.
        kind: `default`, the scaling that a config names, or `factors`: each frequency divided by
            its own number, as GGUF stores the result of llama3's scaling.
        parameters: the scaling's numbers by their names in the config; of `factors`, by "0", "1", …

    Raises:
        ConfigError: a parameter that the scaling lacks, does not have, or cannot mean.
    """

    theta: float = 10000.0
    kind: RopeKind = "default"
    parameters: tuple[tuple[str, float | int | bool], ...] = ()

    def __post_init__(self) -> None:
        where = f"rope {self.kind}"
        if not 1 < self.theta < math.inf:
            raise ConfigError(where, "no such base", got=self.theta, want="above 1")
        given = dict(self.parameters)
        for name, value in given.items():
            may_be_zero = name in {"truncate", "mscale", "mscale_all_dim"}
            if not (0 < value < math.inf or (value == 0 and may_be_zero)):
                raise ConfigError(where, f"no such {name}", got=value, want="above 0")
        if self.kind == "factors":
            return
        if missing := sorted(_NEEDED[self.kind] - set(given)):
            raise ConfigError(where, "parameters are missing", want=", ".join(missing))
        if unknown := sorted(set(given) - _KNOWN[self.kind]):
            raise ConfigError(where, "unknown parameters", got=", ".join(unknown))
        if self.kind == "llama3" and given["high_freq_factor"] <= given["low_freq_factor"]:
            raise ConfigError(
                where,
                "the bands are empty",
                got=f"low_freq_factor {given['low_freq_factor']}",
                want=f"below high_freq_factor {given['high_freq_factor']}",
            )


@lru_cache(maxsize=64)
def frequencies(rope: Rope, head_dim: int, context: int) -> tuple[Array, float]:
    """Radians a position of each pair, [D/2] in float64, and what multiplies cos and sin.

    `context` stands in where the scaling does not say how long its original context was.

    Raises:
        ConfigError: an odd head, or `factors` of another size.
    """
    if head_dim < 2 or head_dim % 2:
        raise ConfigError("rope", "pairs of channels turn together", got=head_dim, want="even")
    parameters = dict(rope.parameters)
    original = float(parameters.get(_ORIGINAL, context))
    series = rope.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)  # [D/2]
    factor = 1.0
    match rope.kind:
        case "linear":
            series = series / parameters["factor"]
        case "llama3":
            series = _llama3(series, parameters, original)
        case "yarn":
            series, factor = _yarn(series, rope.theta, parameters, original, context)
        case "factors":
            if len(parameters) != len(series):
                raise ConfigError(
                    "rope factors", "another size", got=len(parameters), want=len(series)
                )
            series = series / np.array(list(parameters.values()), np.float64)
    series.flags.writeable = False  # shared by every caller
    return series, factor


def tables(positions: Array, rope: Rope, *, head_dim: int, context: int) -> tuple[Array, Array]:
    """cos and sin of S positions for heads of half-split pairs (i, i + D/2), each [D, S] in fp32.

    Both halves of the rows are alike: turned = x·cos + rotate_half(x)·sin.
    """
    series, factor = frequencies(rope, head_dim, context)
    angles = series[:, None] * np.asarray(positions, np.float64)[None, :]  # [D/2, S]
    cos = (np.cos(angles) * factor).astype(np.float32)
    sin = (np.sin(angles) * factor).astype(np.float32)
    return np.concatenate([cos, cos]), np.concatenate([sin, sin])


def _llama3(series: Array, parameters: dict[str, float | int | bool], original: float) -> Array:
    """Long waves slowed by `factor`, short ones kept, a ramp between (Llama 3.1's scaling)."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = original * series / (2 * math.pi)  # within the original context
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return series * (kept + (1 - kept) / parameters["factor"])


def _yarn(
    series: Array,
    theta: float,
    parameters: dict[str, float | int | bool],
    original: float,
    context: int,
) -> tuple[Array, float]:
    """Interpolated where few turns fit the original context, kept where many do.

    Source: YaRN, arXiv 2309.00071, sections 3.2 to 3.4.
    """
    head_dim = 2 * len(series)
    factor = float(parameters.get("factor", context / original))

    def pair_of(turns: float) -> float:
        """The pair, as a real number, that turns so often within the original context."""
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_of(float(parameters.get("beta_fast", 32)))
    high = pair_of(float(parameters.get("beta_slow", 1)))
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step, not a division by zero
    interpolated = np.clip((np.arange(len(series)) - low) / (high - low), 0, 1)
    scaled = series * (1 - interpolated) + series / factor * interpolated
    return scaled, _yarn_attention(parameters, factor)


def _yarn_attention(parameters: dict[str, float | int | bool], factor: float) -> float:
    """What multiplies cos and sin: given, or from the factor by the paper's fit."""
    if "attention_factor" in parameters:
        return float(parameters["attention_factor"])

    def fit(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    over, under = parameters.get("mscale", 0), parameters.get("mscale_all_dim", 0)
    return fit(over) / fit(under) if over and under else fit(1)
