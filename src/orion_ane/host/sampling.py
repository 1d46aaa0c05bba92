"""From logits to a token, on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import BackendError, ConfigError
from orion_ane.types import Array


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; the defaults are greedy.

    Attributes:
        temperature: divides the logits; 0 takes the largest.
        top_k: keep the k most probable tokens; None, 0, or k at or over the
            vocabulary, keeps all.
        top_p: keep the fewest tokens that together reach this probability, always the first;
            0 is greedy, 1 keeps all.

    Raises:
        ConfigError: a value that means nothing.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < float("inf"):
            raise ConfigError(
                "temperature", "out of range", got=self.temperature, want="at least 0"
            )
        is_count = isinstance(self.top_k, int) and not isinstance(self.top_k, bool)
        if self.top_k is not None and not (is_count and self.top_k >= 0):
            raise ConfigError("top_k", "out of range", got=self.top_k, want="at least 0")
        if not _is_number(self.top_p) or not 0 <= self.top_p <= 1:
            raise ConfigError("top_p", "out of range", got=self.top_p, want="0 to 1")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def sample(logits: Array, how: Sampling, rng: np.random.Generator) -> int:
    """One token drawn from logits [V]; -inf is a token that cannot come.

    Raises:
        BackendError: a logit is NaN or +inf, or all are -inf: the run before it went wrong.
    """
    if np.isnan(logits).any() or np.isposinf(logits).any() or np.isneginf(logits).all():
        bad = int(np.argmax(~np.isfinite(logits)))
        raise BackendError("logits", "not finite", got=f"{logits[bad]} at token {bad}")
    if how.temperature == 0 or how.top_p == 0 or how.top_k == 1:
        return int(np.argmax(logits))
    order = np.argsort(-logits, kind="stable")[: how.top_k or None]
    scores = logits[order].astype(np.float64)
    with np.errstate(under="ignore", over="ignore"):
        weights = np.exp((scores - scores[0]) / how.temperature)
    before = np.cumsum(weights) - weights  # the mass of the more probable ones
    kept = weights * (before < how.top_p * weights.sum())
    kept[0] = weights[0]  # the first always stays (case G05)
    return int(order[rng.choice(len(order), p=kept / kept.sum())])


def log_softmax(logits: Array) -> Array:
    """Log-probabilities over the last axis in float64, shifted by the maximum (case N13).

    A row with NaN or +inf, or with nothing but -inf, is NaN throughout.
    """
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        shifted = wide - wide.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
