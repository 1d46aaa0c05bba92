"""Memory of the engine's own: in large pages where the system has them, and one arena for all."""

from __future__ import annotations

import mmap

import numpy as np

from orion_ane.types import Array

HUGE = 1 << 21  # bytes from which large pages are asked for; what they are on most systems

_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def block(size: int) -> memoryview:
    """That many bytes of zeros of this process alone, not of its children's.

    In large pages, if the system has such and there are enough.
    """
    if size < HUGE:
        return memoryview(bytearray(size))
    held = mmap.mmap(-1, size, **_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        held.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(held)


class Arena:
    """Bytes that live for one run: all plans of a process share them, one at a time."""

    def __init__(self) -> None:
        self.bytes: Array = np.empty(0, np.uint8)

    def at_least(self, size: int) -> Array:
        """The arena, at least that large, its start at a multiple of 64."""
        if self.bytes.size < size:
            self.bytes = np.empty(0, np.uint8)  # let go before more is taken
            held = np.frombuffer(block(size + 64), np.uint8)
            start = -held.ctypes.data % 64
            self.bytes = held[start : start + size]
        return self.bytes
