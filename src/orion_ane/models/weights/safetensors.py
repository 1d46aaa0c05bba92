"""safetensors, read as views of the mapped file after every number of its header is checked.

The format: the header's length (u64, little endian), the header (JSON: name to dtype, shape and
data_offsets, and `__metadata__` of texts), then the tensors' bytes without gaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.host.pages import forget
from orion_ane.models.weights.documents import parse_json
from orion_ane.models.weights.fields import listed
from orion_ane.models.weights.tensors import Stored, view, widen_bf16
from orion_ane.models.weights.unchanged import Unchanged
from orion_ane.types import MAX_ELEMENTS, Array

MAX_HEADER = 32 << 20  # a header of 4096 layers takes 6 MB
MAX_RANK = 8

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
READ = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


@dataclass(frozen=True)
class Slice:
    """Where a tensor lies: its type and shape, and its bytes counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class SafetensorsFile:
    """An open file: its tensors by name, and the texts of `__metadata__`."""

    path: Path
    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]


def open_safetensors(path: Path, *, doubles: bool = False) -> SafetensorsFile:
    """The file's tensors, their numbers not yet read.

    Args:
        path: the file.
        doubles: whether F64 is read too, as it is: the reader rounds it.

    Raises:
        CheckpointError: empty, cut short, or a header that does not describe the file.
    """
    where = str(path)
    try:
        file_now = Unchanged.of(path)
        size = file_now.size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            _check_length(where, size, length)
            header = parse_json(where, file.read(length))
    except OSError as error:
        raise CheckpointError(where, f"cannot be read ({error.strerror})") from error
    metadata = _metadata(where, header.pop("__metadata__", {}))
    slices = {name: _slice(where, name, entry) for name, entry in header.items()}
    _check_cover(where, slices, size - 8 - length)
    data = np.asarray(np.memmap(path, np.uint8, "r"))[8 + length :]
    return SafetensorsFile(
        path,
        {k: _stored(s, data, file_now, doubles=doubles) for k, s in slices.items()},
        metadata,
    )


def _check_length(where: str, size: int, length: int) -> None:
    """The header lies within the file."""
    if size == 0:
        raise CheckpointError(where, "the file is empty", want="a safetensors file")
    if size < 8:
        raise CheckpointError(where, "cut short", got=f"{size} bytes", want="8 and a header")
    if length > MAX_HEADER:
        raise CheckpointError(
            where,
            "the header is absurdly long",
            got=f"{length} bytes",
            want=f"at most {MAX_HEADER}",
            hint="this is not a safetensors file, or its first bytes are damaged",
        )
    if 8 + length > size:
        raise CheckpointError(
            where, "cut short within the header", got=f"{size} bytes", want=f"over {8 + length}"
        )


def _metadata(where: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CheckpointError(where, "__metadata__ is not a map of texts")
    return value


def _slice(where: str, name: str, entry: object) -> Slice:
    """One entry of the header, whose numbers agree with each other."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end], **rest} if (
            not rest and _are_counts(*shape, begin, end)
        ):
            pass
        case _:
            raise CheckpointError(where, f"{name} is not described as a tensor")
    if dtype not in BITS:
        raise CheckpointError(where, f"{name} has an unknown type", got=dtype, want=listed(BITS))
    if len(shape) > MAX_RANK or (elements := math.prod(shape)) > MAX_ELEMENTS:
        raise CheckpointError(
            where, f"{name} has an absurd shape", got=listed([str(n) for n in shape])
        )
    bits = elements * BITS[dtype]
    if bits % 8 or end - begin != bits // 8:
        raise CheckpointError(
            where,
            f"{name} has another size than its shape",
            got=f"{end - begin} bytes",
            want=f"{bits // 8} for {dtype} {shape}",
        )
    return Slice(dtype, tuple(shape), begin, end)


def _are_counts(*values: object) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _check_cover(where: str, slices: Mapping[str, Slice], size: int) -> None:
    """The tensors lie one after another and fill the file."""
    at = 0
    for name, piece in sorted(slices.items(), key=lambda item: (item[1].begin, item[1].end)):
        if piece.begin != at:
            what = "overlaps the one before" if piece.begin < at else "leaves a gap before it"
            raise CheckpointError(where, f"{name} {what}", got=piece.begin, want=at)
        at = piece.end
    if at > size:
        raise CheckpointError(
            where,
            "cut short",
            got=f"{size} bytes of tensors",
            want=at,
            hint="the download or copy was not finished; fetch the file again",
        )
    if at < size:
        raise CheckpointError(where, "bytes after the last tensor", got=size - at, want=0)


def _stored(piece: Slice, data: Array, file: Unchanged, *, doubles: bool) -> Stored:
    kind = "fp64" if doubles and piece.dtype == "F64" else READ.get(piece.dtype)
    if kind is None:
        return Stored(piece.shape, piece.dtype.lower(), None)
    return Stored(piece.shape, kind, partial(_read, piece, data, file))


def _read(piece: Slice, data: Array, file: Unchanged) -> Array:
    """The numbers, as a view of the file unless they are bf16."""
    file.check()
    raw = data[piece.begin : piece.end]
    if piece.dtype == "BF16":
        wide = widen_bf16(view(raw, "<u2", piece.shape))
        forget(raw)
        return wide
    return view(raw, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[piece.dtype], piece.shape)
