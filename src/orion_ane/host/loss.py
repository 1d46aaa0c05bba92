"""Cross-entropy and its gradient on the host, in fp32, summed and not yet divided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import DataError
from orion_ane.types import Array

IGNORED = -100
"""A target that does not count: it has no loss and no gradient."""


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of some targets.

    Means are for whoever knows all targets of a step (case D01): sums add up, means do not.

    Attributes:
        total: the sum of negative log-probabilities, in nats.
        tokens: the targets that count.
        gradient: of `total` by the logits, of their shape and in fp32.
    """

    total: float
    tokens: int
    gradient: Array

    @property
    def mean(self) -> float:
        """Nats a token; 0 where none counts (case D05)."""
        return self.total / self.tokens if self.tokens else 0.0


def cross_entropy(logits: Array, targets: Array, *, axis: int = -1) -> Loss:
    """The loss of each target under the logits of its lane.

    Args:
        logits: [S, V], or [V, S] with `axis` 0, in any float type.
        targets: ids [S]; `IGNORED` ones do not count.
        axis: the axis of the vocabulary.

    Raises:
        DataError: a target outside the vocabulary.
    """
    by_vocab = np.moveaxis(logits, axis, 0)  # [V, S]
    v, s = by_vocab.shape
    counts = targets != IGNORED
    _check_targets(targets[counts], v)
    top = by_vocab.max(axis=0).astype(np.float32)  # [S]; shifted by it, no exp overflows (N13)
    scores = np.subtract(by_vocab, top, dtype=np.float32)
    lanes, labels = np.arange(s)[counts], targets[counts]
    hit = scores[labels, lanes].astype(np.float64)
    shares = np.exp(scores, out=scores)
    sums = shares.sum(axis=0)  # [S]
    total = float((np.log(sums[counts].astype(np.float64)) - hit).sum())
    shares /= sums
    shares[labels, lanes] -= 1
    if not counts.all():
        shares[:, ~counts] = 0
    return Loss(total, len(lanes), np.moveaxis(shares, 0, axis))


def _check_targets(targets: Array, vocab: int) -> None:
    bad = (targets < 0) | (targets >= vocab)
    if bad.any():
        raise DataError(
            "targets",
            "no such id",
            got=int(targets[bad][0]),
            want=f"0 to {vocab - 1}, or {IGNORED} for what does not count",
        )
