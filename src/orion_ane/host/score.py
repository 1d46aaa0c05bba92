"""How well a model predicts a text."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """The loss over some tokens.

    Attributes:
        loss: the mean, in nats a token, over all tokens alike (case D11).
        tokens: how many counted.
    """

    loss: float
    tokens: int

    @classmethod
    def of(cls, total: float, tokens: int) -> Score:
        """That of a sum of losses over so many tokens; 0 where none counts."""
        return cls(total / tokens if tokens else 0.0, tokens)

    @property
    def perplexity(self) -> float:
        """exp(loss); inf where a double does not hold it."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    def told(self, of: str) -> dict[str, float | None]:
        """`OF_loss` and `OF_perplexity`, as documents have them.

        JSON has no word for a number that is not finite: it is None.
        """
        found = {f"{of}_loss": self.loss, f"{of}_perplexity": self.perplexity}
        return {name: value if math.isfinite(value) else None for name, value in found.items()}
