"""Cross-entropy and its gradient on the host, in fp32, summed and not yet divided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import DataError
from orion_ane.host.parts import Each, in_turn
from orion_ane.types import Array

IGNORED = -100
"""A target that does not count: it has no loss and no gradient."""

PART = 1024
"""Tokens of the vocabulary that are computed at a time, near the processor."""


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


def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    axis: int = -1,
    out: Array | None = None,
    each: Each = in_turn,
) -> Loss:
    """The loss of each target under the logits of its lane.

    Args:
        logits: [S, V], or [V, S] with `axis` 0, in any float type.
        targets: ids [S]; `IGNORED` ones do not count.
        axis: the axis of the vocabulary.
        out: where the gradient goes, in fp32; it may be the logits.
        each: has parts of it done; how many at once does not show in the results.

    Raises:
        DataError: a target outside the vocabulary.
    """
    by_vocab = np.moveaxis(logits, axis, 0)  # [V, S]
    v, s = by_vocab.shape
    counts = targets != IGNORED
    _check_targets(targets[counts], v)
    lanes, labels = np.arange(s)[counts], targets[counts]
    gradient = np.empty(logits.shape, np.float32) if out is None else out
    shares, parts = np.moveaxis(gradient, axis, 0), range(-(-v // PART))
    tops, sums = np.empty((2, len(parts), s), np.float32)
    hit = by_vocab[labels, lanes].astype(np.float32)

    def highest(part: int) -> None:
        tops[part] = by_vocab[part * PART : (part + 1) * PART].max(axis=0)

    def share(part: int) -> None:
        own = slice(part * PART, (part + 1) * PART)
        with np.errstate(all="ignore"):  # a thread has its own
            scores = np.subtract(by_vocab[own], top, dtype=np.float32, out=shares[own])
            np.exp(scores, out=scores).sum(axis=0, out=sums[part])

    def divide(part: int) -> None:
        with np.errstate(all="ignore"):
            shares[part * PART : (part + 1) * PART] *= scale

    each(highest, parts)
    top = tops.max(axis=0)  # [S]; shifted by it, no exp overflows (N13)
    each(share, parts)
    with np.errstate(all="ignore"):
        whole = sums.sum(axis=0)  # [S]
        total = float((np.log(whole[counts].astype(np.float64)) - (hit - top[counts])).sum())
        scale = np.where(counts, 1 / whole, np.float32(0))
    each(divide, parts)
    shares[labels, lanes] -= 1
    if not counts.all():
        shares[:, ~counts] = 0  # whatever was there: NaN times 0 is NaN
    return Loss(total, len(lanes), gradient)


def _check_targets(targets: Array, vocab: int) -> None:
    bad = (targets < 0) | (targets >= vocab)
    if bad.any():
        raise DataError(
            "targets",
            "no such id",
            got=int(targets[bad][0]),
            want=f"0 to {vocab - 1}, or {IGNORED} for what does not count",
        )
