"""How well a model on a device predicts rows of ids, with an adapter or without."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orion_ane.generate.adapters import Chosen
from orion_ane.generate.model import Model
from orion_ane.host.loss import cross_entropy
from orion_ane.types import Array


@dataclass(frozen=True)
class Score:
    """The loss over some tokens, in nats a token.

    Attributes:
        loss: the mean over all tokens alike.
        tokens: how many counted.
    """

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss); inf where a double does not hold it."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf


def score(model: Model, rows: Iterable[tuple[Array, Array]], *, adapter: Chosen = None) -> Score:
    """The loss over rows, each of what is read and of what should come after each of it."""
    total, tokens = 0.0, 0
    for ids, targets in rows:
        found = cross_entropy(model.logits(ids.tolist(), adapter=adapter), targets, axis=1)
        total, tokens = total + found.total, tokens + found.tokens
    return Score(total / tokens if tokens else 0.0, tokens)
