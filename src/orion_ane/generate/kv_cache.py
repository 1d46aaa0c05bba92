"""Keys and values of the positions so far, in the shape that a body program reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from orion_ane.types import Array, DType

MIN_CACHED = 64


def capacities(context: int) -> Iterator[int]:
    """The rooms that a cache may have, each twice the one before, to what a context needs."""
    # Every position ever cached is below the context, so the last may stop there.
    most = -(-context // 32) * 32
    capacity = MIN_CACHED
    while capacity < most:
        yield capacity
        capacity *= 2
    yield most


class KVCache:
    """The caches of all layers, each [1, channels, 1, capacity], filled up to `length`.

    What lies beyond `length` is zeros, and the mask hides it.
    """

    def __init__(self, layers: int, channels: int, dtype: DType) -> None:
        self._layers, self._channels, self._dtype = layers, channels, dtype
        self.length = 0
        self.capacity = 0
        self.ports: dict[str, Array] = {}

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` positions, keeping what is there."""
        if capacity <= self.capacity:
            return
        for layer in range(self._layers):
            for kind in "kv":
                name = f"{kind}_cache_{layer:02d}"
                grown = np.zeros((1, self._channels, 1, capacity), self._dtype.numpy)
                if self.length:
                    grown[..., : self.length] = self.ports[name][..., : self.length]
                self.ports[name] = grown
        self.capacity = capacity

    def append(self, outputs: Mapping[str, Array], count: int) -> None:
        """Take the first `count` lanes of a run's new keys and values `k_NN`, `v_NN`."""
        end = self.length + count
        for layer in range(self._layers):
            for kind in "kv":
                new = outputs[f"{kind}_{layer:02d}"]
                self.ports[f"{kind}_cache_{layer:02d}"][..., self.length : end] = new[..., :count]
        self.length = end
