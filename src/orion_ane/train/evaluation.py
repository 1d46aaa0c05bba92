"""How well a model predicts a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orion_ane.host.score import Score
from orion_ane.train.batch import Batch
from orion_ane.train.network import Network
from orion_ane.train.peers import Peers
from orion_ane.types import Array


def evaluate(
    network: Network,
    batches: Iterable[Batch],
    masters: Mapping[str, Array],
    peers: Peers | None = None,
) -> Score:
    """The loss of a model over batches, and over those of its peers; nothing is learnt."""
    found = network.loss(batches, masters)
    loss, tokens = (peers or Peers()).summed(found.loss, found.tokens)
    return Score.of(loss, tokens)
