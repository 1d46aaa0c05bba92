"""BLOBFILE v2, read and written: 64-byte header, then metadata and data of each blob.

Little endian; every metadata and every data start is a multiple of 64; a reference in a program
is the offset of the *metadata*, so that of a lone weight is 64 and its data starts at 128.
Source: coremltools' MIL blob storage (MIL reference, 2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from orion_ane.errors import MilError, ShapeError
from orion_ane.host.pages import forget
from orion_ane.mil.program import Buffer, buffer_digest
from orion_ane.mil.subbyte import pack_bits, packed_size, sign_extended, unpack_bits
from orion_ane.types import Array, TensorType

DEFAULT_PATH = "@model_path/weights/weight.bin"
ALIGNMENT = 64
VERSION = 2
SENTINEL = 0xDEADBEEF
MAX_WEIGHT_BYTES = 1 << 31
"""The most weight bytes one program may have: more fails to load (case W11)."""

COPIED = 1 << 22  # bytes of a mapped file that are in memory beside their copy

_HEADER = struct.Struct("<II56x")  # count, version, reserved
_METADATA = struct.Struct("<IIQQQ32x")  # sentinel, dtype, size, data offset, padding bits, reserved


class BlobDType(Enum):
    """An element type of a blob, with its code in the file and its bits an element."""

    FP16 = (1, 16)
    FP32 = (2, 32)
    UINT8 = (3, 8)
    INT8 = (4, 8)
    BF16 = (5, 16)
    INT16 = (6, 16)
    UINT16 = (7, 16)
    INT4 = (8, 4)
    UINT1 = (9, 1)
    UINT2 = (10, 2)
    UINT4 = (11, 4)
    UINT3 = (12, 3)
    UINT6 = (13, 6)
    INT32 = (14, 32)
    UINT32 = (15, 32)
    FP8E4M3FN = (16, 8)
    FP8E5M2 = (17, 8)

    def __init__(self, code: int, bits: int) -> None:
        self.code, self.bits = code, bits

    def __str__(self) -> str:
        return self.name.lower()

    __repr__ = __str__

    @classmethod
    def of(cls, dtype: DTypeLike) -> BlobDType:
        """The blob type with the values of a numpy type.

        Raises:
            MilError: a blob has no such elements; bools stand in the text, doubles nowhere.
        """
        found = _FROM_NUMPY.get(np.dtype(dtype))
        if found is None:
            raise MilError(
                "blob", "no such element type", got=np.dtype(dtype), want=list(_FROM_NUMPY.values())
            )
        return found


_NUMPY: dict[BlobDType, np.dtype[Any]] = {
    BlobDType.FP16: np.dtype("<f2"),
    BlobDType.FP32: np.dtype("<f4"),
    BlobDType.UINT8: np.dtype("u1"),
    BlobDType.INT8: np.dtype("i1"),
    BlobDType.INT16: np.dtype("<i2"),
    BlobDType.UINT16: np.dtype("<u2"),
    BlobDType.INT32: np.dtype("<i4"),
    BlobDType.UINT32: np.dtype("<u4"),
}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items()}
_FROM_CODE = {dtype.code: dtype for dtype in BlobDType}


@dataclass(frozen=True)
class Blob:
    """The packed bytes of one tensor, its element type and its number of elements; no shape.

    Raises:
        MilError: the bytes are not as many as the elements need.
    """

    dtype: BlobDType
    data: Buffer
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _bytes_of(self.data))
        if self.count < 0 or len(self.data) != packed_size(self.count, self.dtype.bits):
            raise MilError(
                "blob",
                "size and count disagree",
                got=f"{len(self.data)} bytes for {self.count} {self.dtype}",
                want=f"{packed_size(self.count, self.dtype.bits)} bytes",
            )

    @property
    def padding_bits(self) -> int:
        """Unused high bits of the last byte."""
        return 8 * len(self.data) - self.count * self.dtype.bits

    def array(self) -> Array:
        """The elements, read-only and without an axis more than one.

        A view of the data where numpy has the type; narrow integers come in a byte each, bf16 and
        fp8 exactly widened to fp32.
        """
        if self.dtype in _NUMPY:
            values = np.frombuffer(self.data, _NUMPY[self.dtype])
        else:
            values = _widened(self.dtype, self.data, self.count)
        values.flags.writeable = False
        return values

    @classmethod
    def of(cls, values: Array, dtype: BlobDType | None = None) -> Blob:
        """The elements of an array, row by row, as `dtype` (by default the array's own).

        Raises:
            MilError: a value does not fit, or would have to be rounded.
        """
        to = BlobDType.of(values.dtype) if dtype is None else dtype
        if to not in _NUMPY and to.bits >= 8:
            raise MilError("blob", f"{to} is not rounded to here", hint="give a Blob its bytes")
        with np.errstate(invalid="ignore", over="ignore"):
            stored = np.ascontiguousarray(values, _NUMPY.get(to, np.int8)).reshape(-1)
        lowest = -(1 << to.bits - 1) if to is BlobDType.INT4 else 0
        fits = to in _NUMPY or np.all((stored >= lowest) & (stored < lowest + (1 << to.bits)))
        if not fits or not np.array_equal(stored, values.reshape(-1), equal_nan=True):
            raise MilError("blob", f"does not fit {to}", got=f"{values.min()} to {values.max()}")
        data = stored.view(np.uint8) if to in _NUMPY else pack_bits(stored, to.bits)
        return cls(to, data.data, values.size)


def _widened(dtype: BlobDType, data: Buffer, count: int) -> Array:
    """The elements of a type that numpy lacks, in one that holds them all."""
    raw = np.frombuffer(data, np.uint8)
    match dtype:
        case BlobDType.BF16:  # the upper half of an fp32
            return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
        case BlobDType.FP8E5M2:  # the upper half of an fp16
            return (raw.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
        case BlobDType.FP8E4M3FN:
            return _from_e4m3fn(raw)
        case BlobDType.INT4:
            return sign_extended(unpack_bits(raw, dtype.bits, count), dtype.bits)
        case _:
            return unpack_bits(raw, dtype.bits, count)


def _from_e4m3fn(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """fp8 with 4 exponent bits of bias 7, 3 mantissa bits, NaN at both ends and no infinity."""
    wide = raw.astype(np.uint16)
    # In fp16's fields the exponent's bias is 15, so the value comes out 2^8 too small.
    half = ((wide & 0x80) << 8 | (wide & 0x7F) << 7).astype(np.uint16).view(np.float16)
    return np.where(wide & 0x7F == 0x7F, np.float32(np.nan), half.astype(np.float32) * 256)


def read_blob(data: Buffer, offset: int) -> Blob:
    """The blob whose metadata is at `offset`; its bytes are a view of `data`.

    The header's count and the reserved fields are not asked: writers leave garbage there.

    Raises:
        MilError: naming the offset, where the file is not BLOBFILE v2 or the blob not inside it.
    """
    file = _bytes_of(data)
    _read_header(file)
    return _read_blob(file, offset)[0]


def read_blobs(data: Buffer) -> tuple[Blob, ...]:
    """Every blob that the header counts, in the file's order.

    Each metadata is looked for behind the data before it, which is where writers put it.

    Raises:
        MilError: naming the offset, where a blob is damaged or lies over another.
    """
    file = _bytes_of(data)
    count = _read_header(file)
    most = (len(file) - _HEADER.size) // _METADATA.size
    if count > most:
        raise MilError("blob file", "absurd count", got=count, want=f"at most {most} in its bytes")
    blobs, offset = [], ALIGNMENT
    for _ in range(count):
        blob, end = _read_blob(file, offset, floor=offset + _METADATA.size)
        blobs.append(blob)
        offset = _aligned(end)
    return tuple(blobs)


def _read_header(file: memoryview) -> int:
    """The number of blobs that a file claims."""
    if len(file) < _HEADER.size:
        raise MilError(
            "blob file", "too short", got=f"{len(file)} bytes", want=f"a header of {_HEADER.size}"
        )
    count, version = _HEADER.unpack_from(file)
    if version != VERSION:
        raise MilError("blob file", "wrong version at byte 4", got=version, want=VERSION)
    return int(count)


def _read_blob(file: memoryview, offset: int, floor: int = 0) -> tuple[Blob, int]:
    """The blob at `offset`, whose data may not start before `floor`, and where its data ends."""
    where = f"blob at byte {offset}"
    if offset < ALIGNMENT or offset % ALIGNMENT:
        raise MilError(where, "no such place", want=f"a multiple of {ALIGNMENT}, not 0")
    if offset + _METADATA.size > len(file):
        raise MilError(where, "metadata past the end", got=f"a file of {len(file)} bytes")
    sentinel, code, size, start, padding = _METADATA.unpack_from(file, offset)
    if sentinel != SENTINEL:
        raise MilError(where, "no metadata here", got=f"{sentinel:#010x}", want=f"{SENTINEL:#x}")
    dtype = _FROM_CODE.get(code)
    if dtype is None:
        raise MilError(where, "no such dtype", got=code, want=f"1 to {len(_FROM_CODE)}")
    if start % ALIGNMENT:
        raise MilError(where, "data misaligned", got=start, want=f"a multiple of {ALIGNMENT}")
    if start + size > len(file):
        raise MilError(
            where, "data past the end", got=f"{size} bytes at {start}", want=f"within {len(file)}"
        )
    over_own = start < offset + _METADATA.size and offset < start + size
    if start < max(floor, ALIGNMENT) or over_own:
        raise MilError(where, "data over a header or another blob", got=f"{size} bytes at {start}")
    bits = 8 * size - (padding if dtype.bits < 8 else 0)  # elsewhere the field is not used
    if (padding > 7 and dtype.bits < 8) or bits < 0 or bits % dtype.bits:
        raise MilError(
            where, f"not whole {dtype} elements", got=f"{size} bytes less {padding} bits"
        )
    return Blob(dtype, file[start : start + size], bits // dtype.bits), start + size


def _bytes_of(data: Buffer) -> memoryview:
    """A read-only view of a buffer's bytes."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise MilError("blob file", "bytes with gaps", got=f"strides {view.strides}")
    return (view if view.format == "B" and view.ndim == 1 else view.cast("B")).toreadonly()


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def lay_out(sizes: Iterable[int], *, limit: int = MAX_WEIGHT_BYTES) -> tuple[tuple[int, ...], int]:
    """The metadata offset of each blob of so many bytes, and the size of the file they make.

    Raises:
        MilError: the file would be larger than `limit`.
    """
    offsets, end = [], _HEADER.size
    for size in sizes:
        offsets.append(_aligned(end))
        end = offsets[-1] + _METADATA.size + size
    check_size(end, limit=limit)
    return tuple(offsets), end


def check_size(size: int, *, limit: int = MAX_WEIGHT_BYTES) -> None:
    """Refuse more weight bytes than a program may have.

    Raises:
        MilError: naming both numbers.
    """
    if size > limit:
        raise MilError(
            "weights",
            "too large for one program",
            got=f"{size} bytes",
            want=f"at most {limit}",
            hint="split the model into several programs, each with a file of its own",
        )


@dataclass(frozen=True)
class _Chunk:
    """What is written of one blob."""

    dtype: BlobDType
    padding: int
    source: Array


def _write(chunks: list[_Chunk], limit: int) -> tuple[memoryview, tuple[int, ...]]:
    """A file of the chunks, each copied once and then let go, and their offsets."""
    offsets, end = lay_out((chunk.source.nbytes for chunk in chunks), limit=limit)
    file, at = _aligned_room(end), _HEADER.size
    file[:at] = np.frombuffer(_HEADER.pack(len(chunks), VERSION), np.uint8)
    for offset in offsets:
        chunk = chunks.pop(0)
        start, source = offset + _METADATA.size, chunk.source
        file[at:offset], at = 0, start + source.nbytes
        fields = SENTINEL, chunk.dtype.code, source.nbytes, start, chunk.padding
        _METADATA.pack_into(file.data, offset, *fields)
        target = file[start : start + source.nbytes].view(source.dtype)
        _copy(source, target.reshape(source.shape))
    return file.data.toreadonly(), offsets


def _copy(source: Array, target: Array) -> None:
    """Copy as arrays: a strided source is gathered here, not written as it lies in memory.

    Some rows at a time, of which nothing is kept in memory where they lie in a mapped file.
    """
    step = max(1, COPIED * len(source) // max(1, source.nbytes)) if source.ndim else 1
    for at in range(0, len(source), step) if source.ndim else ():
        target[at : at + step] = source[at : at + step]
        forget(source[at : at + step])
    if not source.ndim:
        target[...] = source


def _aligned_room(size: int) -> NDArray[np.uint8]:
    """Memory whose first byte is at a multiple of 64, so that views of a file are too."""
    room = np.empty(size + ALIGNMENT, np.uint8)  # numpy asks for large pages here, not in zeros
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + size]


def write_blobs(blobs: Iterable[Blob]) -> tuple[memoryview, tuple[int, ...]]:
    """A file of the blobs in their order, and the metadata offset of each.

    Raises:
        MilError: they make more than one program may have.
    """
    chunks = [_Chunk(b.dtype, b.padding_bits, np.frombuffer(b.data, np.uint8)) for b in blobs]
    return _write(chunks, MAX_WEIGHT_BYTES)


@dataclass(frozen=True, eq=False)
class WeightFile:
    """One blob file of named weights, which any number of programs may share.

    Attributes:
        path: its name in the programs' text.
        data: its bytes, read-only.
        offsets: where each weight's metadata is, by label.
        types: each weight's type, by label.
    """

    path: str
    data: Buffer
    offsets: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, TensorType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _bytes_of(self.data))
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))

    @cached_property
    def digest(self) -> str:
        """The identity of the bytes, reckoned once for all programs that share the file."""
        return buffer_digest(self.data)

    def array(self, label: str) -> Array:
        """A weight as a read-only view of the file."""
        if label not in self.offsets:
            raise MilError(f"weight {label}", f"not in {self.path}", want=sorted(self.offsets))
        return read_blob(self.data, self.offsets[label]).array().reshape(self.types[label].shape)


def pack(
    arrays: Mapping[str, Array], path: str = DEFAULT_PATH, *, limit: int = MAX_WEIGHT_BYTES
) -> WeightFile:
    """One file of all arrays in their order, each copied once, whatever its strides.

    Of those that lie in files mapped for reading, the process keeps no pages.

    Raises:
        MilError: an array has a type or shape that a weight cannot have, or the file would be
            larger than `limit`; nothing is allocated then.
    """
    chunks, types = [], {}
    for label, array in arrays.items():
        try:
            types[label] = TensorType.of(array)
            chunks.append(_Chunk(BlobDType.of(array.dtype), 0, array))
        except (MilError, ShapeError) as error:
            raise MilError(
                f"weight {label}", "cannot lie in a blob", got=f"{array.dtype}{list(array.shape)}"
            ) from error
    data, offsets = _write(chunks, limit)
    return WeightFile(path, data, dict(zip(arrays, offsets, strict=True)), types)
