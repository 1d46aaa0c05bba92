"""How well a model predicts a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orion_ane.train.batch import Batch
from orion_ane.train.network import Network
from orion_ane.train.peers import Peers
from orion_ane.types import Array


@dataclass(frozen=True)
class Evaluation:
    """The loss over some tokens.

    Attributes:
        loss: the mean, in nats a token, over all tokens alike (case D11).
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


def evaluate(
    network: Network,
    batches: Iterable[Batch],
    masters: Mapping[str, Array],
    peers: Peers | None = None,
) -> Evaluation:
    """The loss of a model over batches, and over those of its peers; nothing is learnt."""
    found = network.loss(batches, masters)
    loss, tokens = (peers or Peers()).summed(found.loss, found.tokens)
    return Evaluation(loss / tokens if tokens else 0.0, tokens)
