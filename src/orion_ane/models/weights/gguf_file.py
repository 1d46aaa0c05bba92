"""GGUF files: the header, read with every count and offset checked before it is believed.

The package `gguf` reads trusting files, and slowly; of it we take the quantised formats only.
The format: magic, version, counts of tensors and of key-value pairs; the pairs; the tensors' names,
shapes, types and offsets; then, aligned, their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from orion_ane.errors import CheckpointError
from orion_ane.host.pages import forget
from orion_ane.models.weights.quantised import Quantised, of_file
from orion_ane.models.weights.tensors import Stored, view, widen_bf16
from orion_ane.models.weights.unchanged import Unchanged
from orion_ane.types import MAX_ELEMENTS, Array

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEY = 65535  # the format's own limit
MAX_COUNT = 1 << 16  # pairs, and tensors; the largest models have some thousands
MAX_ITEMS = 1 << 22  # of an array in the metadata; vocabularies have up to 262,144
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32
CHUNK = 1 << 17  # elements dequantised at once: large for speed, small against a model

STRING, ARRAY, BOOL = 8, 9, 7
LENGTH = struct.Struct("<Q")
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", BOOL: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
TYPES = {kind.value: kind for kind in GGMLQuantizationType}
FLOATS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
QUANTS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")


@dataclass(frozen=True)
class GgufFile:
    """An open file: its metadata by key, lists as tuples, and its tensors by name."""

    metadata: Mapping[str, object]
    tensors: Mapping[str, Stored]


@dataclass(frozen=True)
class Info:
    """What the header says of a tensor; the shape has the contiguous axis last."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


class Cursor:
    """A place in the header that never leaves the file."""

    def __init__(self, where: str, data: memoryview) -> None:
        self.where, self.at, self._data = where, 0, data

    def take(self, count: int, what: str) -> memoryview:
        """The next bytes.

        Raises:
            CheckpointError: the file ends before.
        """
        if count > len(self._data) - self.at:
            raise CheckpointError(
                self.where,
                f"cut short within {what}",
                got=f"{len(self._data)} bytes",
                want=f"at least {self.at + count}",
            )
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, form: str, what: str) -> int:
        """The next whole number."""
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def count(self, what: str, most: int) -> int:
        """The next count, which is not absurd."""
        found = self.number("<Q", what)
        if found > most:
            raise CheckpointError(
                self.where, f"an absurd {what}", got=found, want=f"at most {most}"
            )
        return found

    def text(self, what: str, most: int | None = None) -> str:
        """The next string."""
        length = self.number("<Q", what)
        if most is not None and length > most:
            raise CheckpointError(
                self.where, f"an absurdly long {what}", got=length, want=f"at most {most}"
            )
        try:
            return str(self.take(length, what), "utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(self.where, f"{what} is not UTF-8") from error

    def texts(self, count: int, what: str) -> tuple[str, ...]:
        """The next strings, without the ceremony of one: vocabularies have 100,000."""
        found: list[str] = []
        data, at, end = self._data, self.at, len(self._data)
        for _ in range(count):
            start = at + 8
            stop = start + LENGTH.unpack_from(data, at)[0] if start <= end else start
            if stop > end:
                break
            try:
                found.append(str(data[start:stop], "utf-8"))
            except UnicodeDecodeError as error:
                raise CheckpointError(self.where, f"{what} is not UTF-8") from error
            at = stop
        self.at = at
        if len(found) < count:
            self.take(end - at + 1, what)  # says how the file ends too early
        return tuple(found)


def open_gguf(path: Path) -> GgufFile:
    """The file's metadata and tensors, their numbers not yet read.

    Raises:
        CheckpointError: cut short, or a header that does not describe the file.
    """
    where = str(path)
    try:
        file_now = Unchanged.of(path)
        size = file_now.size
        if size == 0:
            raise CheckpointError(where, "the file is empty", want="a GGUF file")
        data = np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise CheckpointError(where, f"cannot be read ({error.strerror})") from error
    cursor = Cursor(where, data.data)
    tensor_count, pair_count = _counts(cursor)
    metadata = _pairs(cursor, pair_count)
    infos = _infos(cursor, tensor_count)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not 1 <= alignment <= MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise CheckpointError(where, "no such alignment", got=alignment, want="a power of two")
    start = -(-cursor.at // alignment) * alignment
    _check_places(where, infos, start, alignment, size)
    stored = {info.name: _stored(info, data[start:], file_now) for info in infos}
    return GgufFile(metadata, stored)


def _counts(cursor: Cursor) -> tuple[int, int]:
    """How many tensors and pairs the file says it has."""
    magic = bytes(cursor.take(4, "the magic number"))
    if magic != MAGIC:
        raise CheckpointError(cursor.where, "not a GGUF file", got=magic, want=MAGIC)
    version = cursor.number("<I", "the version")
    if version not in VERSIONS:
        got = f"{version}, big-endian" if version and version & 0xFFFF == 0 else version
        raise CheckpointError(
            cursor.where, "a GGUF version that is not read", got=got, want="2 or 3, little-endian"
        )
    return cursor.count("number of tensors", MAX_COUNT), cursor.count("number of keys", MAX_COUNT)


def _pairs(cursor: Cursor, count: int) -> dict[str, object]:
    """The metadata."""
    found: dict[str, object] = {}
    for _ in range(count):
        key = cursor.text("key", MAX_KEY)
        if key in found:
            raise CheckpointError(cursor.where, "a key stands twice", got=key)
        found[key] = _value(cursor, cursor.number("<I", key), key)
    return found


def _value(cursor: Cursor, kind: int, key: str) -> object:
    """A value of the metadata: a scalar, a string, or a tuple of either."""
    if kind == STRING:
        return cursor.text(key)
    if form := SCALARS.get(kind):
        return _scalars(cursor, form, 1, key)[0]
    if kind != ARRAY:
        raise CheckpointError(cursor.where, f"{key} has an unknown type", got=kind)
    kind, count = cursor.number("<I", key), cursor.count(f"length of {key}", MAX_ITEMS)
    if kind == STRING:
        return cursor.texts(count, key)
    if form := SCALARS.get(kind):
        return _scalars(cursor, form, count, key)
    raise CheckpointError(cursor.where, f"{key} has elements of an unknown type", got=kind)


def _scalars(cursor: Cursor, form: str, count: int, key: str) -> tuple[object, ...]:
    raw = cursor.take(count * struct.calcsize(form), key)
    return tuple(np.frombuffer(raw, form).tolist())


def _infos(cursor: Cursor, count: int) -> list[Info]:
    """What the header says of each tensor."""
    found: dict[str, Info] = {}
    for _ in range(count):
        name = cursor.text("tensor name", MAX_KEY)
        if name in found:
            raise CheckpointError(cursor.where, "a tensor stands twice", got=name)
        found[name] = _info(cursor, name)
    return list(found.values())


def _info(cursor: Cursor, name: str) -> Info:
    where, rank = cursor.where, cursor.number("<I", name)
    if rank > MAX_DIMS:
        raise CheckpointError(where, f"{name} has too many axes", got=rank, want=MAX_DIMS)
    dims = [cursor.number("<Q", name) for _ in range(rank)]
    if not all(dims) or prod(dims) > MAX_ELEMENTS:
        raise CheckpointError(where, f"{name} has an absurd shape", got=dims)
    number = cursor.number("<I", name)
    kind = TYPES.get(number)
    if kind is None:
        raise CheckpointError(where, f"{name} has an unknown type", got=number)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    row = dims[0] if dims else 1
    if row % block:
        raise CheckpointError(
            where, f"{name} has rows of no whole blocks", got=row, want=f"multiples of {block}"
        )
    nbytes = prod(dims) // block * block_bytes
    return Info(name, tuple(reversed(dims)), kind, cursor.number("<Q", name), nbytes)


def _check_places(where: str, infos: list[Info], start: int, alignment: int, size: int) -> None:
    """The tensors lie aligned, apart, and within the file."""
    end = 0
    for info in sorted(infos, key=lambda info: info.offset):
        if info.offset % alignment:
            raise CheckpointError(
                where, f"{info.name} is not aligned", got=info.offset, want=f"×{alignment}"
            )
        if info.offset < end:
            raise CheckpointError(
                where, f"{info.name} overlaps the one before", got=info.offset, want=f"from {end}"
            )
        end = info.offset + info.nbytes
        if start + end > size:
            raise CheckpointError(
                where,
                f"cut short within {info.name}",
                got=f"{size} bytes",
                want=f"at least {start + end}",
                hint="the download or copy was not finished; fetch the file again",
            )


def _stored(info: Info, data: Array, file: Unchanged) -> Stored:
    name = info.type.name
    kind = FLOATS.get(name, name.lower())
    is_read = name in FLOATS or name in QUANTS
    is_codes = name == "Q8_0" and len(info.shape) > 1
    return Stored(
        info.shape,
        kind,
        partial(_read, info, data, file) if is_read else None,
        partial(_blocks, info, data, file) if is_codes else None,
    )


def _blocks(info: Info, data: Array, file: Unchanged) -> Quantised:
    """The codes of a matrix, where they lie in the file."""
    file.check()
    return of_file(data[info.offset : info.offset + info.nbytes], info.shape)


def _read(info: Info, data: Array, file: Unchanged) -> Array:
    """The numbers in fp32, or in fp16 where the file has them so."""
    file.check()
    raw = data[info.offset : info.offset + info.nbytes]
    match info.type.name:
        case "F32":
            return view(raw, "<f4", info.shape)
        case "F16":
            return view(raw, "<f2", info.shape)
        case "BF16":
            found = widen_bf16(view(raw, "<u2", info.shape))
        case _:
            found = _dequantised(info, raw)
    forget(raw)
    return found


def _dequantised(info: Info, raw: Array) -> Array:
    """A quantised tensor's numbers in fp32, some blocks at a time."""
    block, block_bytes = GGML_QUANT_SIZES[info.type]
    blocks = raw.reshape(-1, block_bytes)
    found = np.empty((len(blocks), block), np.float32)
    step = CHUNK // block
    with np.errstate(all="ignore"):  # a scale may be infinite or NaN: what reads the tensor counts
        for at in range(0, len(blocks), step):
            part = blocks[at : at + step]
            found[at : at + step] = dequantize(part.reshape(1, -1), info.type).reshape(-1, block)
    return found.reshape(info.shape)
