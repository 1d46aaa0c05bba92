"""What a run has learnt so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from orion_ane.host.adamw import Moments
from orion_ane.train.layout import masters as as_masters
from orion_ane.types import Array


@dataclass(eq=False)
class State:
    """Everything that a run has learnt; arrays are written in place.

    Attributes:
        masters: the tensors in fp32, by canonical name.
        moments: AdamW's, likewise.
        step: how many steps were taken, those skipped included.
        updates: how many of them moved the weights, which is AdamW's own count.
        skipped: how many did not, since a gradient was not finite or nothing was to be learnt.
        tokens_seen: targets that counted.
        loss_scale: of what flows back through stages that have no scale of their own.
        scales: of those that have, by name.
        streak: steps in a row that moved the weights; below 0, that were not finite.
        is_torn: whether a step broke off while it was written here: some weights have moved and
            others have not.  Such a state is not saved, and nothing goes on from it.
    """

    masters: dict[str, Array]
    moments: dict[str, Moments]
    step: int = 0
    updates: int = 0
    skipped: int = 0
    tokens_seen: int = 0
    loss_scale: float = 1.0
    streak: int = 0
    scales: dict[str, float] = field(default_factory=dict)
    is_torn: bool = field(default=False, init=False)

    @classmethod
    def fresh(cls, tensors: Mapping[str, Array], *, loss_scale: float = 1.0) -> State:
        """That of a run that has seen no step."""
        copied = as_masters(tensors)
        moments = {name: Moments.zero(array.shape) for name, array in copied.items()}
        return cls(copied, moments, loss_scale=loss_scale)

    def scale(self, stage: str) -> float:
        """That of what flows back through a stage."""
        return self.scales.get(stage, self.loss_scale)

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Write a step here, all of it: what breaks off, for whatever reason, leaves it torn."""
        self.is_torn = True
        yield
        self.is_torn = False  # not in a `finally`: an error must not come this far
