"""The learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from orion_ane.errors import ConfigError

Shape: TypeAlias = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class Schedule:
    """A rate that rises over the warm-up, then stays or falls to its end.

    With `warmup` = w, step s (from 0) has the rate lr·(s+1)/w while s < w: never 0, and all of it
    in the last step of the warm-up (case O05).  After it a share p = (s−w)/(steps−w) of the rest
    lies behind, and the rate lies between `lr` and `floor`·`lr`: by 1−p for `linear`, by
    (1+cos πp)/2 for `cosine`.  Past the last step it stays where it ended.

    Attributes:
        lr: the highest rate.
        steps: how many steps there are.
        shape: how it falls after the warm-up.
        warmup: steps of the rise; 0 is none.
        floor: the share of `lr` that it ends at.

    Raises:
        ConfigError: no steps (case O03), or a value that means nothing.
    """

    lr: float
    steps: int
    shape: Shape = "constant"
    warmup: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            want = ", ".join(get_args(Shape))
            raise ConfigError("schedule", "no such schedule", got=self.shape, want=want)
        if self.steps < 1:
            raise ConfigError("steps", "nothing to train", got=self.steps, want="at least 1")
        if not 0 <= self.lr < math.inf:
            raise ConfigError("lr", "no such rate", got=self.lr, want="0 or more")
        if not 0 <= self.warmup <= self.steps:
            want = f"0 to the {self.steps} steps"
            raise ConfigError("warmup", "out of range", got=self.warmup, want=want)
        if not 0 <= self.floor <= 1:
            raise ConfigError("floor", "out of range", got=self.floor, want="0 to 1")

    def __call__(self, step: int) -> float:
        """The rate of a step, from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        left = 1 - self._share(step)
        match self.shape:
            case "constant":
                height = 1.0
            case "linear":
                height = left
            case "cosine":
                height = (1 - math.cos(math.pi * left)) / 2
        return self.lr * (self.floor + (1 - self.floor) * height)

    def _share(self, step: int) -> float:
        """How much of what follows the warm-up lies behind, 0 to 1."""
        after = max(1, self.steps - self.warmup)
        return min(1.0, (step - self.warmup) / after)
