"""What of A's inputs is dropped while an adapter is learnt: told by place, and by no state.

A mask's numbers are those of a counter (Philox): of the seed, the linear, the row's number among
all that the run draws, and the token's in it.  So they are the same after a resume, by any number
of threads, and however rows are dealt to microbatches and processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from orion_ane.errors import ConfigError
from orion_ane.types import Array

END = ".lora_dropout"


@dataclass(frozen=True, eq=False)
class Dropped:
    """One linear's place among those that drop.

    Attributes:
        number: of the linear, among all of its model.
        width: the numbers of a token that enter A.
        order: how the program has them; None is as they are.
    """

    number: int
    width: int
    order: Array | None


class Dropout:
    """The masks of a run: 0 where a number is dropped, else 1/(1-p).

    Attributes:
        ports: what programs read, `<path>.lora_dropout` [1,I,1,S], by name.

    Args:
        rate: p, which part is dropped.
        seed: of the run.
        ports: likewise.

    Raises:
        ConfigError: all would be dropped, or less than nothing.
    """

    def __init__(self, rate: float, seed: int, ports: Mapping[str, Dropped]) -> None:
        if not 0 <= rate < 1:
            raise ConfigError("dropout", "no such part", got=rate, want="0 up to, but not, 1")
        self._rate, self.ports = rate, MappingProxyType(dict(ports))
        self._key = np.random.SeedSequence([seed, len("dropout")]).generate_state(2, np.uint64)
        self._whole: dict[int, Array] = {}

    def mask(self, port: str, *, row: int, lanes: int) -> Array:
        """A port's value in fp32 for a row of the run."""
        one = self.ports[port]
        bits = np.random.Philox(key=self._key, counter=[0, one.number, row, 0])
        count = lanes * one.width
        words = bits.random_raw(-(-count // 2)).astype("<u8", copy=False).view("<u4")[:count]
        kept = words.reshape(lanes, one.width) >= np.uint32(self._rate * 2**32)  # [S, I]
        if one.order is not None:
            kept = kept[:, one.order]
        value = np.float32(1 / (1 - self._rate))
        return np.multiply(kept.T, value, dtype=np.float32, order="C")[None, :, None]

    def whole(self, port: str, *, lanes: int) -> Array:
        """A port's value where nothing is learnt: ones."""
        width = self.ports[port].width
        if width not in self._whole:
            self._whole[width] = np.ones((1, width, 1, lanes), np.float32)
        return self._whole[width]
