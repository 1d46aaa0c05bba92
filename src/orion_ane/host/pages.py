"""Pages of mapped files, which a process need not hold once it has copied what they say."""

from __future__ import annotations

import mmap

import numpy as np

from orion_ane.types import Array


def forget(array: Array) -> None:
    """Let go of the memory of an array that lies in a file mapped for reading; of others nothing.

    Whoever asks for the numbers again gets them from the file again.
    """
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(base, "madvise"):  # Windows has none
        return
    whole = np.frombuffer(base, np.uint8)
    if whole.flags.writeable:  # what was written there need not be in the file
        return
    first = array.ctypes.data - whole.ctypes.data
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    if array.size and array.flags.c_contiguous:
        base.madvise(mmap.MADV_DONTNEED, start, first + array.nbytes - start)
