"""Types and constants of an mlProgram, as the text's parser has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from orion_ane.errors import MilError, OrionError
from orion_ane.interop.coreml.errors import UnsupportedError
from orion_ane.interop.coreml.files import Files
from orion_ane.interop.coreml.proto import word_of
from orion_ane.ir import Node
from orion_ane.mil.arguments import Value
from orion_ane.mil.blob import Blob, BlobDType, lay_out, write_blobs
from orion_ane.mil.program import Buffer
from orion_ane.mil.subbyte import packed_size
from orion_ane.mil.written import DTYPES, Constant, Written
from orion_ane.ops import BlobRef, Const, Weight
from orion_ane.ops.leaf import MAX_CONST_ELEMENTS
from orion_ane.types import MAX_ELEMENTS, Array, TensorType

MADE_PATH = "@model_path/weights/inline.bin"
"""The blob file of constants that the text cannot hold."""

MAX_LISTED = 4096
"""Integers of a blob up to which they are read as a list, which a parameter may want to be."""

_WIDER = {"int4": "int8", **dict.fromkeys(("uint1", "uint2", "uint3", "uint4", "uint6"), "uint8")}
"""Where a value of fewer bits than a byte is held: in whole bytes, with the same numbers."""

_IN_BYTES = ("fp16", "int8", "uint8", "uint32", *_WIDER)


def read_type(of: Any, like: tuple[int, ...] | None = None) -> Written:
    """The type of a value, narrow integers in whole bytes; sizes that it leaves open are `like`'s.

    Raises:
        UnsupportedError: a size is not known, or this is no tensor.
    """
    word, shape = _type(of, like)
    return Written(_WIDER.get(word, word), shape)


def _type(of: Any, like: tuple[int, ...] | None = None) -> tuple[str, tuple[int, ...]]:
    kind = of.WhichOneof("type")
    if kind != "tensorType":
        what = (kind or "missing").removesuffix("Type")
        raise UnsupportedError(f"{what} types", "are not supported", want="tensors")
    tensor = of.tensorType
    is_open = [size.WhichOneof("dimension") != "constant" for size in tensor.dimensions]
    if any(is_open) and (like is None or len(like) != len(is_open)):
        hint = "give the shapes of the inputs"
        raise UnsupportedError("dynamic shapes", "are not supported", got=like, hint=hint)
    sizes = [int(size.constant.size) for size in tensor.dimensions]
    for axis, size in enumerate(like if any(is_open) and like is not None else ()):
        sizes[axis] = size if is_open[axis] else sizes[axis]
    shape = tuple(sizes)
    word = word_of(tensor.dataType)
    if not word or tensor.rank not in (-1, len(shape)):
        got = f"data type {tensor.dataType}, rank {tensor.rank}, sizes {list(shape[:8])}"
        raise MilError("mlProgram", "not a type", got=got)
    return word, shape


@dataclass
class Constants:
    """What a program's constants become; those too long for a text get a blob file of their own."""

    files: Files
    made: list[tuple[int, Blob]] = field(default_factory=list)

    def read(self, value: Any, label: str) -> Value:
        """A constant as an argument: a value, or what may be a parameter as well.

        Raises:
            MilError: it has not as many elements as its type, or its blob is not one.
            UnsupportedError: it is of a type that no value has.
        """
        word, shape = _type(value.type)
        if value.WhichOneof("value") == "blobFileValue":
            return self._blob(word, shape, value.blobFileValue, label)
        elements = _immediate(value, word, shape, label)
        if isinstance(elements, list):
            return Constant("string", shape, tuple(elements))
        return self.value(elements, label)

    def array(self, value: Any, label: str) -> Array:
        """A constant as an array, which may have more axes than a value.

        Raises:
            MilError: as `read`.
        """
        word, shape = _type(value.type)
        if value.WhichOneof("value") == "blobFileValue":
            return self._found(word, shape, value.blobFileValue, label).array().reshape(shape)
        return np.asarray(_immediate(value, word, shape, label))

    def array_of(self, value: Value) -> Array | None:
        """What `read` read, as an array; None where it is no constant."""
        if isinstance(value, Constant):
            dtype = DTYPES[value.dtype].numpy if value.dtype in DTYPES else None
            return np.array(value.elements, dtype).reshape(value.shape)
        match value.op:
            case Const() as leaf:
                return leaf.value
            case Weight(of=of, at=BlobRef(path=path, offset=offset)):
                made = [blob for at, blob in self.made if path == MADE_PATH and at == offset]
                blob = made[0] if made else self.files.blob(path, offset)
                return blob.array().reshape(of.shape)
        return None

    def value(self, array: Array, label: str) -> Value:
        """An array as an argument.

        Raises:
            UnsupportedError: no value has its type.
        """
        if array.ndim <= 1 and array.size <= MAX_CONST_ELEMENTS:
            return Constant(str(array.dtype.name).replace("float", "fp"), array.shape, _flat(array))
        of = _supported(TensorType.of, array)
        if array.size > MAX_CONST_ELEMENTS and of.dtype.value != "bool":
            return self._made(array, of, label)
        return Node(_supported(Const, of, array.tobytes()))

    def _made(self, array: Array, of: TensorType, label: str) -> Node:
        """A weight in the file that is made for those that are in none."""
        offsets, _ = lay_out([*(len(blob.data) for _, blob in self.made), array.nbytes])
        self.made.append((offsets[-1], Blob.of(array)))
        return Node(Weight(label, of, BlobRef(MADE_PATH, offsets[-1])))

    def _found(self, word: str, shape: tuple[int, ...], at: Any, label: str) -> Blob:
        """The blob at a reference, which must be of the type that the message says."""
        path, offset = at.fileName, int(at.offset)
        blob = self.files.blob(path, offset)
        if (blob.dtype.name.lower(), blob.count) != (word, prod(shape)):
            got = f"{blob.count} elements of {blob.dtype}"
            what = f"the blob at byte {offset} of {path} is another"
            raise MilError(label, what, got=got, want=Written(word, shape))
        return blob

    def _blob(self, word: str, shape: tuple[int, ...], at: Any, label: str) -> Value:
        blob = self._found(word, shape, at, label)
        is_list = len(shape) <= 1 and blob.count <= MAX_LISTED and not word.startswith("fp")
        if is_list or 0 in shape:
            return self.value(blob.array().reshape(shape), label)
        of = _supported(Written(_WIDER.get(word, word), shape).tensor)
        if word in _WIDER:
            return self._made(blob.array().reshape(shape), of, label)
        return Node(Weight(label, of, BlobRef(at.fileName, int(at.offset))))

    def blob_files(self) -> dict[str, Buffer]:
        """Every blob file that a weight was read from, and that of the long constants."""
        found = dict(self.files.read)
        if self.made:
            found[MADE_PATH] = write_blobs(blob for _, blob in self.made)[0]
        return found


def _immediate(value: Any, word: str, shape: tuple[int, ...], label: str) -> Array | list[str]:
    """The elements of a constant in the message; strings as a list."""
    kind = value.WhichOneof("value")
    if kind != "immediateValue" or value.immediateValue.WhichOneof("value") != "tensor":
        raise UnsupportedError("constants", "are not supported", got=kind, want="tensors")
    if prod(shape) > MAX_ELEMENTS:
        raise MilError(label, "too many elements", got=list(shape), want=MAX_ELEMENTS)
    elements = _elements(value.immediateValue.tensor, word, prod(shape), label)
    return elements if isinstance(elements, list) else elements.reshape(shape)


def _supported(make: Any, *args: Any) -> Any:
    """What `make` makes; what it refuses is sound, but has no place here."""
    try:
        return make(*args)
    except OrionError as error:
        raise UnsupportedError(
            error.where, error.what, got=error.got, want=error.want, hint=error.hint
        ) from error


def _flat(array: Array) -> tuple[Any, ...]:
    return tuple(array.ravel().tolist())


def _elements(tensor: Any, word: str, count: int, label: str) -> Array | list[str]:
    """The elements of an immediate tensor, in the field that its type has."""
    name = tensor.WhichOneof("value")
    want = field_of(word)
    if name is None and count == 0:
        name = want
    if name != want:
        what = f"{word} values are not supported" if want is None else "elements in a wrong field"
        raise UnsupportedError(label, what, got=name, want=want)
    values = getattr(tensor, name).values
    if name == "bytes":
        return _unpacked(values, word, count, label)
    if len(values) != count:
        raise MilError(label, "not as many elements as its type", got=len(values), want=count)
    if name == "strings":
        return list(values)
    if word == "uint64":
        return np.array(values, np.uint64)
    wide = np.array(values, np.float32 if name == "floats" else np.int64)
    dtype = DTYPES[word].numpy
    if name == "ints" and not np.array_equal(wide, wide.astype(dtype)):
        raise MilError(label, f"does not fit {word}", got=f"{wide.min()} to {wide.max()}")
    return wide.astype(dtype)


def field_of(word: str) -> str | None:
    """The field of a message in which elements of a type stand, or None where there is none."""
    fields = {"fp32": "floats", "bool": "bools", "string": "strings", "uint64": "longInts"}
    fields |= dict.fromkeys(_IN_BYTES, "bytes") | dict.fromkeys(("int16", "uint16"), "ints")
    return fields.get(word, "ints" if word == "int32" else None)


def _unpacked(data: bytes, word: str, count: int, label: str) -> Array:
    dtype = BlobDType[word.upper()]
    if len(data) != packed_size(count, dtype.bits):
        want = packed_size(count, dtype.bits)
        raise MilError(label, "not as many bytes as its type", got=len(data), want=want)
    return Blob(dtype, data, count).array()
