"""Weights that nobody checks: whatever bytes lie where a reference leads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orion_ane.ane.faults.loud import HINT, INVALID
from orion_ane.errors import BackendError
from orion_ane.mil.blob import ALIGNMENT, SENTINEL
from orion_ane.mil.program import Buffer
from orion_ane.ops.leaf import Weight
from orion_ane.types import Array

_START = slice(16, 24)  # of a blob's metadata: u32 sentinel, u32 dtype, u64 size, u64 offset


def unchecked(weight: Weight, files: Mapping[str, Buffer]) -> Array:
    """The bytes that a weight's reference leads to, as its type; zeros behind the file's end.

    A reference to metadata leads where these say, any other to its own place.

    Raises:
        BackendError: there is no such file.
    """
    at, of = weight.at, weight.of
    assert at is not None, "what was parsed has a place"
    if at.path not in files:
        raise BackendError("compile", INVALID, hint=HINT)
    file = memoryview(files[at.path]).cast("B")
    metadata = file[at.offset : at.offset + ALIGNMENT]
    is_metadata = int.from_bytes(metadata[:4], "little") == SENTINEL
    start = int.from_bytes(metadata[_START], "little") if is_metadata else at.offset
    data = bytes(file[start : start + of.nbytes]).ljust(of.nbytes, b"\0")
    return np.frombuffer(data, of.dtype.numpy).reshape(of.shape)
