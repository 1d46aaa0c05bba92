"""What a step gathers: sums of losses and gradients, how large they came, and where time went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from orion_ane.host.parts import Each, in_turn
from orion_ane.types import Array


@dataclass
class Timings:
    """Where the time of a step went, in milliseconds, by part."""

    ms: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count the time of the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - started) * 1000
            self.ms[part] = self.ms.get(part, 0.0) + spent


@dataclass(eq=False)
class Gradients:
    """Sums over every target of a step; nothing is divided yet (case D01).

    Attributes:
        arrays: by canonical tensor, in fp32.
        loss: the sum of negative log-probabilities, in nats.
        tokens: the targets that count.
        bad: the first value that was not finite, as `layers.3 hidden`; None where all were.
        bad_back: the stage on whose way back it was; None where it was on the way there.
        largest: of what flowed back through each stage in fp16, its scale in it.
    """

    arrays: dict[str, Array]
    loss: float = 0.0
    tokens: int = 0
    bad: str | None = None
    bad_back: str | None = None
    largest: dict[str, float] = field(default_factory=dict)

    def mean(self, *, each: Each = in_turn) -> float:
        """Divide the gradients by the tokens, in place; the mean loss."""
        if not self.tokens:
            return 0.0
        arrays, tokens = list(self.arrays.values()), np.float32(self.tokens)

        def divide(i: int) -> None:
            np.divide(arrays[i], tokens, out=arrays[i])

        each(divide, range(len(arrays)))
        return self.loss / self.tokens

    def note(self, stage: str, name: str, *, finite: bool, back: bool = False) -> None:
        """Remember where the first value stood that was not finite."""
        if self.bad is None and not finite:
            self.bad = f"{stage} {name}"
            self.bad_back = stage if back else None
