"""How well a model on a device predicts rows of ids, with an adapter or without."""

from __future__ import annotations

from collections.abc import Iterable

from orion_ane.generate.adapters import Chosen
from orion_ane.generate.model import Model
from orion_ane.host.loss import cross_entropy
from orion_ane.host.score import Score
from orion_ane.types import Array

__all__ = ["Score", "score"]


def score(model: Model, rows: Iterable[tuple[Array, Array]], *, adapter: Chosen = None) -> Score:
    """The loss over rows, each of what is read and of what should come after each of it."""
    total, tokens = 0.0, 0
    for ids, targets in rows:
        found = cross_entropy(model.logits(ids.tolist(), adapter=adapter), targets, axis=1)
        total, tokens = total + found.total, tokens + found.tokens
    return Score.of(total, tokens)
