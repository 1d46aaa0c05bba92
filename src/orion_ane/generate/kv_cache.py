"""Keys and values of the positions so far, in the shape that a body program reads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from orion_ane.types import Array, DType

MIN_CACHED = 64
_LINE = 64  # bytes that a processor reads at once


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

    Args:
        layers: how many have one.
        channels: of the keys of a position, and of its values.
        dtype: of both.
        by_position: whether a position's channels lie side by side, rather than a channel's
            positions.

    Attributes:
        ports: the caches by their port's name; views of one array.
        news: the names of a run's new keys and values, in the order of the caches.
    """

    def __init__(
        self, layers: int, channels: int, dtype: DType, *, by_position: bool = False
    ) -> None:
        both = [f"{kind}_{{}}{layer:02d}" for layer in range(layers) for kind in "kv"]
        self._names = [name.format("cache_") for name in both]
        self.news = [name.format("") for name in both]
        self._by_position = by_position
        self._all = np.zeros((len(both), channels, 0), dtype.numpy)  # [2·layers, channels, room]
        self.length = 0
        self.ports: dict[str, Array] = {}

    @property
    def capacity(self) -> int:
        """The positions that there is room for."""
        return self._all.shape[2]

    @property
    def nbytes(self) -> int:
        """What is kept, in bytes: what the next token reads."""
        return self._all[..., : self.length].nbytes

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` positions, keeping what is there."""
        if capacity <= self.capacity:
            return
        caches, channels, _ = self._all.shape
        if self._by_position:
            grown = _in_lines((caches, capacity, channels), self._all.dtype).transpose(0, 2, 1)
        else:
            grown = np.zeros((caches, channels, capacity), self._all.dtype)
        grown[..., : self.length] = self._all[..., : self.length]
        self._all = grown
        self.ports = {
            name: part[None, :, None] for name, part in zip(self._names, grown, strict=True)
        }

    def room(self, lanes: int) -> Array:
        """An array for the new keys and values of a run of that many lanes, to be appended."""
        return np.zeros((*self._all.shape[:2], lanes), self._all.dtype)

    def append(self, new: Array, count: int) -> None:
        """Take the first `count` lanes of a run's new keys and values, in the order of `news`."""
        end = self.length + count
        self._all[..., self.length : end] = new[..., :count]
        self.length = end


def _in_lines(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Zeros that begin with a line of memory, so that no vector of a head lies in two."""
    size, line = prod(shape), _LINE // dtype.itemsize
    held = np.zeros(size + line, dtype)
    start = -held.ctypes.data % _LINE // dtype.itemsize
    return held[start : start + size].reshape(shape)
