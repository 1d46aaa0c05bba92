"""A safetensors file of fp32 arrays, written from where they lie and on the disk before it counts.

The reader is `models.weights.safetensors`, which describes the format.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.types import Array

PIECE = 1 << 22
ALIGNMENT = 8


@dataclass(frozen=True)
class Written:
    """What a file should hold: its size, and the SHA-256 of its bytes."""

    bytes: int
    sha256: str


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> Written:
    """Write a new file; it is on the disk when this returns.

    Args:
        path: must not be there.
        arrays: fp32, by name.

    Raises:
        OSError: the disk is full, or the file cannot be made.
    """
    header: dict[str, object] = {}
    at = 0
    for name, array in arrays.items():
        assert array.dtype == np.float32, name  # our own state, which is nothing else
        ends = [at, at + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": ends}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    pieces = [len(text).to_bytes(8, "little") + text]
    return write_pieces(path, (*pieces, *(_bytes(array) for array in arrays.values())))


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> Written:
    """Write a new file of some pieces; it is on the disk when this returns.

    Raises:
        OSError: the disk is full, or the file cannot be made.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("xb", buffering=0) as file:
        for piece in pieces:
            view = memoryview(piece)
            digest.update(view)
            size += len(view)
            while view:  # the system may take less than all
                view = view[file.write(view[:PIECE]) :]
        os.fsync(file.fileno())
    return Written(size, digest.hexdigest())


def _bytes(array: Array) -> memoryview:
    contiguous = np.ascontiguousarray(array, "<f4")
    return contiguous.reshape(-1).view(np.uint8).data


def want_written(path: Path, want: Written) -> None:
    """Refuse a file that does not hold what was written.

    Raises:
        CheckpointError: it is missing, cut short, or another.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    if size != want.bytes:
        raise CheckpointError(str(path), "another size", got=size, want=f"{want.bytes} bytes")
    if digest.hexdigest() != want.sha256:
        raise CheckpointError(str(path), "damaged: not the bytes that were written")
