"""Memory for what programs give, which the next sequence takes again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from orion_ane.types import Array, TensorType


class Room:
    """Arrays that are lent, one user after the other: new memory takes longer to get than to fill.

    What is lent has the numbers of whoever had it before.
    """

    def __init__(self) -> None:
        self._free: defaultdict[TensorType, list[Array]] = defaultdict(list)
        self._lent: dict[int, tuple[TensorType, Array]] = {}

    def take(self, of: TensorType) -> Array:
        """A packed array of that type, which is lent to nobody else."""
        free = self._free[of]
        array = free.pop() if free else np.empty(of.shape, of.dtype.numpy)
        self._lent[id(array)] = of, array
        return array

    def leave(self, arrays: Iterable[Array]) -> None:
        """Have others take these arrays; those that were not lent are left alone."""
        for array in arrays:
            if (found := self._lent.pop(id(array), None)) is not None:
                self._free[found[0]].append(array)

    def leave_all(self) -> None:
        """Have others take whatever is lent."""
        self.leave([array for _, array in self._lent.values()])

    def give_up(self) -> None:
        """Let go of all memory: what is lent is its users' alone."""
        self._free.clear()
        self._lent.clear()
