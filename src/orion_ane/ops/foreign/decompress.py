"""What MIL's `constexpr_` ops unpack, as functions of arrays: an importer folds by them.

Integers of less than a byte come in whole bytes.  Masks are numbers, of which any but 0 is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.types import Array

Given: TypeAlias = Mapping[str, Array]

MAX_FOLDED = 1 << 32
"""Elements of what tables of vectors make: it grows as the product of both sizes."""


def affine(quantized_data: Array, zero_point: Array, scale: Array, axis: Array) -> Array:
    """scale (quantized_data − zero_point), both of one number or of one for each place on `axis`.

    Raises:
        ShapeError: they are of other sizes, or there is no such axis.
    """
    along = int(axis)
    rank = quantized_data.ndim
    if not -rank <= along < rank:
        raise ShapeError("constexpr_affine_dequantize", "no such axis", got=along)
    shape = [1] * rank
    shape[along] = -1
    parts = []
    for name, vector in (("zero_point", zero_point), ("scale", scale)):
        fits = vector.ndim < 2 and vector.size in (1, quantized_data.shape[along])
        if not fits:
            got, want = vector.shape, f"1 or {quantized_data.shape[along]} numbers"
            where = "constexpr_affine_dequantize"
            raise ShapeError(where, f"{name} does not fit", got=got, want=want)
        parts.append(_wide(vector).reshape(shape if vector.ndim else ()))
    return _narrow((_wide(quantized_data) - parts[0]) * parts[1], scale)


def blockwise(data: Array, scale: Array, offset: Array | None = None) -> Array:
    """scale (data − offset), where each number of scale and offset serves a block of data.

    Raises:
        ShapeError: the blocks do not cover data.
    """
    where = "constexpr_blockwise_shift_scale"
    if data.ndim != scale.ndim or any(n % m for n, m in zip(data.shape, scale.shape, strict=True)):
        got = f"{data.shape} and {scale.shape}"
        raise ShapeError(where, "blocks do not cover data", got=got, want="sizes that divide")
    if offset is not None and offset.shape != scale.shape:
        raise ShapeError(where, "offset does not fit", got=offset.shape, want=scale.shape)
    pairs = zip(data.shape, scale.shape, strict=True)
    blocks = tuple(size for n, m in pairs for size in (m, n // m))
    single = tuple(size for m in scale.shape for size in (m, 1))
    wide = _wide(data).reshape(blocks)
    if offset is not None:
        wide = wide - _wide(offset).reshape(single)
    return _narrow((wide * _wide(scale).reshape(single)).reshape(data.shape), scale)


def looked_up(indices: Array, lut: Array, vector_axis: Array | None = None) -> Array:
    """The entries of tables that stand where the indices say.

    lut: [*groups, entries, vector], where each table serves a block of indices; the elements of a
    vector lie one after the other on `vector_axis`.

    Raises:
        ShapeError: the tables do not cover the indices, or an index is in none.
    """
    where, rank = "constexpr_lut_to_dense", indices.ndim
    groups, (entries, width) = lut.shape[:-2], lut.shape[-2:] if lut.ndim > 1 else (0, 0)
    if len(groups) != rank or any(n % m for n, m in zip(indices.shape, groups, strict=True)):
        got = f"{indices.shape} and {lut.shape}"
        raise ShapeError(where, "tables do not cover the indices", got=got)
    axis = int(vector_axis) if vector_axis is not None else 0
    if not -rank <= axis < rank or (vector_axis is None and width > 1):
        raise ShapeError(where, "no such vector_axis", got=vector_axis, want=f"below {rank}")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < entries:
        raise ShapeError(where, "an index is in no table", got=indices.max(), want=entries)
    if indices.size * width > MAX_FOLDED:
        raise ShapeError(where, "too many elements", got=indices.size * width, want=MAX_FOLDED)
    table = np.arange(prod(groups)).reshape(groups)
    for i, (n, m) in enumerate(zip(indices.shape, groups, strict=True)):
        table = np.repeat(table, n // m, axis=i)
    vectors = lut.reshape(-1, entries, width)[table, indices]  # [*indices, width]
    moved = np.moveaxis(vectors, -1, axis % rank + 1)
    shape = list(indices.shape)
    shape[axis] *= width
    return np.ascontiguousarray(moved.reshape(shape))


def scattered(nonzero_data: Array, mask: Array) -> Array:
    """The numbers, in their order, where the mask is set; else 0.

    Raises:
        ShapeError: there are not as many as the mask has places.
    """
    places = mask != 0
    if nonzero_data.shape != (int(places.sum()),):
        got = nonzero_data.shape
        raise ShapeError("mask", "not as many numbers as places", got=got, want=int(places.sum()))
    dense = np.zeros(mask.shape, nonzero_data.dtype)
    dense[places] = nonzero_data
    return dense


def unpacked(data: Array, bits: int, shape: tuple[int, ...]) -> Array:
    """Elements of so many bits, the lowest first, of a list of bytes.

    Raises:
        ShapeError: there are not as many bytes as the shape needs.
    """
    count = prod(shape)
    if min(shape, default=1) < 1:
        raise ShapeError("shape", "not a shape", got=shape[:8])
    if data.ndim != 1 or data.dtype != np.uint8 or data.size != -(-count * bits // 8):
        got, want = data.shape, f"{-(-count * bits // 8)} bytes"
        raise ShapeError("indices", "not as many bytes as the shape needs", got=got, want=want)
    flat = np.unpackbits(data, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(flat, axis=1, bitorder="little").reshape(shape)


# The ops


def _affine(given: Given) -> tuple[Array, ...]:
    return (affine(**given),)


def _blockwise(given: Given) -> tuple[Array, ...]:
    return (blockwise(**given),)


def _cast(given: Given) -> tuple[Array, ...]:
    return (given["source_val"].astype(np.float32),)


def _lut_to_dense(given: Given) -> tuple[Array, ...]:
    if "shape" not in given:
        return (looked_up(**given),)
    lut, shape = given["lut"], tuple(map(int, given["shape"].ravel()))
    bits = max(lut.size - 1, 1).bit_length()
    if lut.shape != (1 << bits,) or bits > 8:
        raise ShapeError("constexpr_lut_to_dense", "not a table", got=lut.shape, want="2 to 256")
    return (lut[unpacked(given["indices"], bits, shape)],)


def _sparse_to_dense(given: Given) -> tuple[Array, ...]:
    mask = given["mask"]
    if "shape" in given:
        mask = unpacked(mask, 1, tuple(map(int, given["shape"].ravel())))
    return (scattered(given["nonzero_data"], mask),)


def _lut_to_sparse(given: Given) -> tuple[Array, ...]:
    mask, axis = given["indices_mask"], given.get("vector_axis")
    indices = scattered(given["indices_nonzero_data"], mask)
    dense = looked_up(indices, given["lut"], axis)
    if axis is not None:
        mask = np.repeat(mask, given["lut"].shape[-1], axis=int(axis))
    return mask, dense[mask != 0]


def _sparse_blockwise(given: Given) -> tuple[Array, ...]:
    mask = given["data_mask"]
    data = scattered(given["nonzero_data"], mask)
    return mask, blockwise(data, given["scale"], given.get("offset"))[mask != 0]


_FOLDS: dict[str, tuple[Callable[[Given], tuple[Array, ...]], str, str]] = {
    "constexpr_affine_dequantize": (_affine, "quantized_data zero_point scale axis", ""),
    "constexpr_blockwise_shift_scale": (_blockwise, "data scale", "offset"),
    "constexpr_cast": (_cast, "source_val", "output_dtype"),
    "constexpr_lut_to_dense": (_lut_to_dense, "indices lut", "vector_axis shape"),
    "constexpr_sparse_to_dense": (_sparse_to_dense, "nonzero_data mask", "shape"),
    "constexpr_lut_to_sparse": (
        _lut_to_sparse,
        "indices_mask indices_nonzero_data lut",
        "vector_axis",
    ),
    "constexpr_sparse_blockwise_shift_scale": (
        _sparse_blockwise,
        "data_mask nonzero_data scale",
        "offset",
    ),
}


def fold(op: str, given: Given) -> tuple[Array, ...]:
    """The results of a `constexpr_` op on arrays; a string is a parameter that says nothing more.

    Raises:
        MilError: no such op, a parameter is missing, or there is one too many.
        ShapeError: the arrays do not fit each other.
    """
    if op not in _FOLDS:
        raise MilError(op, "no such op")
    function, required, optional = _FOLDS[op]
    missing = set(required.split()) - set(given)
    unknown = set(given) - {*required.split(), *optional.split()}
    if missing or unknown:
        got, want = sorted(given), f"{required} {optional}".strip()
        raise MilError(op, "parameters do not fit", got=got, want=want)
    return function(given)


def _wide(value: Array) -> Array:
    """In a float type that loses nothing: fp16 and small integers in fp32."""
    return value if value.dtype in (np.float32, np.float64) else value.astype(np.float32)


def _narrow(value: Array, scale: Array) -> Array:
    """As the scale is: rounded once."""
    with np.errstate(over="ignore"):
        return value.astype(scale.dtype)
