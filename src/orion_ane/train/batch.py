"""What a step learns from: sequences, and what should come after each of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import DataError
from orion_ane.host.loss import IGNORED
from orion_ane.types import Array


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences to learn from.

    Attributes:
        ids: what is read, [B, S].
        targets: what should come after each, [B, S]; `IGNORED` where nothing is asked.
        first: the number of its first row among all that a run draws, which dropout goes by.
    """

    ids: Array
    targets: Array
    first: int = 0

    @property
    def tokens(self) -> int:
        """The targets that count."""
        return int((self.targets != IGNORED).sum())

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]] | Array) -> Batch:
        """Rows of S + 1 ids, each shifted within itself (case D07)."""
        array = np.asarray(rows, np.int64)
        return cls(array[:, :-1], array[:, 1:])

    def want(self, *, lanes: int, vocab: int) -> None:
        """Refuse what a network of so many lanes and tokens cannot read.

        Raises:
            DataError: a row of another length, or an id outside the vocabulary.
        """
        if self.ids.shape != self.targets.shape or self.ids.shape[1:] != (lanes,):
            got = f"ids {list(self.ids.shape)}, targets {list(self.targets.shape)}"
            raise DataError("batch", "another shape", got=got, want=f"rows of {lanes}")
        bad = (self.ids < 0) | (self.ids >= vocab)
        if bad.any():
            raise DataError(
                "batch", "no such id", got=int(self.ids[bad][0]), want=f"0 to {vocab - 1}"
            )
