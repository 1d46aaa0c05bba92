"""Packed constants unpack as coremltools unpacks them."""

from __future__ import annotations

import warnings

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion_ane.errors import MilError, OrionError
from orion_ane.ir import MilArgs
from orion_ane.ops import const, weight
from orion_ane.ops.foreign.decompress import fold
from orion_ane.ops.foreign.quantization import read_packed
from orion_ane.types import DType, TensorType

FP16_ROUNDING = 2.0**-10
"""coremltools computes in the scale's own type, here everything is rounded once."""


@pytest.fixture(scope="module")
def defs():
    """Its op classes by opset and name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracles.oracle("coremltools")
        base = "coremltools.converters.mil.mil.ops.defs"
        return {
            16: oracles.oracle(f"{base}.iOS16.constexpr_ops"),
            18: oracles.oracle(f"{base}.iOS18.compression"),
        }


@st.composite
def blocks(draw, max_rank: int = 4):
    """Sizes, and sizes that divide them."""
    rank = draw(st.integers(1, max_rank))
    counts = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    return tuple(n * draw(st.integers(1, 3)) for n in counts), counts


def same(ours, theirs) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=FP16_ROUNDING, atol=0)


@settings(max_examples=40)
@given(shape=blocks(), dtype=st.sampled_from([np.float16, np.float32]), seed=st.integers(0, 99))
def test_blocks_of_small_integers_unpack_alike(defs, shape, dtype, seed):
    rng = np.random.default_rng(seed)
    data = rng.integers(-8, 8, shape[0]).astype(np.int8)
    scale = rng.uniform(0.5, 1, shape[1]).astype(dtype)
    offset = rng.integers(-8, 8, shape[1]).astype(np.int8)
    op = defs[18].constexpr_blockwise_shift_scale
    given = {"data": data, "scale": scale}
    same(fold("constexpr_blockwise_shift_scale", given)[0], op.decompress(data, scale, None))
    (found,) = fold("constexpr_blockwise_shift_scale", {**given, "offset": offset})
    same(found, op.decompress(data, scale, offset))


@settings(max_examples=40)
@given(blocks(), st.sampled_from([1, 2, 3, 4, 6, 8]), st.integers(1, 3), st.data())
def test_tables_of_any_rank_unpack_alike(defs, shape, bits, width, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    indices = rng.integers(0, 1 << bits, shape[0]).astype(np.uint8)
    lut = rng.uniform(-1, 1, (*shape[1], 1 << bits, width)).astype(np.float16)
    axis = data.draw(st.integers(-indices.ndim, indices.ndim - 1))
    given = {"indices": indices, "lut": lut, "vector_axis": np.int32(axis)}
    (found,) = fold("constexpr_lut_to_dense", given)
    same(found, defs[18].constexpr_lut_to_dense.decompress(indices, lut, np.int32(axis)))


@settings(max_examples=40)
@given(blocks(), st.integers(1, 2), st.data())
def test_sparse_tables_and_blocks_unpack_alike(defs, shape, width, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    mask = rng.integers(0, 2, shape[0]).astype(np.uint8)
    count = int(mask.sum())
    numbers = rng.integers(0, 4, count).astype(np.uint8)
    lut = rng.uniform(-1, 1, (*shape[1], 4, width)).astype(np.float32)
    axis = np.int32(data.draw(st.integers(0, mask.ndim - 1)))
    given = {"indices_mask": mask, "indices_nonzero_data": numbers, "lut": lut}
    found = fold("constexpr_lut_to_sparse", {**given, "vector_axis": axis})
    theirs = defs[18].constexpr_lut_to_sparse.decompress(mask, numbers, lut, axis)
    for ours, want in zip(found, theirs, strict=True):
        same(ours, want)
    (dense,) = fold("constexpr_sparse_to_dense", {"nonzero_data": found[1], "mask": found[0]})
    same(dense, defs[18].constexpr_sparse_to_dense.decompress(found[1], found[0]))
    scale = rng.uniform(0.5, 1, shape[1]).astype(np.float32)
    given = {"data_mask": mask, "nonzero_data": numbers, "scale": scale, "offset": scale}
    found = fold("constexpr_sparse_blockwise_shift_scale", given)
    op = defs[18].constexpr_sparse_blockwise_shift_scale
    for ours, want in zip(found, op.decompress(mask, numbers, scale, scale), strict=True):
        same(ours, want)


@settings(max_examples=40)
@given(
    st.sampled_from([1, 2, 4, 6, 8]), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data()
)
def test_packed_bytes_of_the_older_opset_unpack_alike(defs, bits, shape, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    count, shape = int(np.prod(shape[0])), np.array(shape[0], np.uint32)
    lut = rng.uniform(-1, 1, 1 << bits).astype(np.float16)
    packed = rng.integers(0, 256, -(-count * bits // 8)).astype(np.uint8)
    (found,) = fold("constexpr_lut_to_dense", {"indices": packed, "lut": lut, "shape": shape})
    same(found, defs[16].constexpr_lut_to_dense.decompress(lut, packed, shape))
    places = rng.integers(0, 2, count).astype(np.uint8)
    numbers = rng.uniform(-1, 1, int(places.sum())).astype(np.float32)
    mask = np.packbits(places, bitorder="little")
    given = {"nonzero_data": numbers, "mask": mask, "shape": shape}
    (found,) = fold("constexpr_sparse_to_dense", given)
    np.testing.assert_array_equal(found.ravel()[places == 1], numbers)
    assert not found.ravel()[places == 0].any()


def test_bytes_with_a_scale_for_each_row_unpack_alike(defs):
    rng = np.random.default_rng(1)
    data, zero = (rng.integers(0, 256, s).astype(np.uint8) for s in ((4, 3), (3,)))
    scale = rng.uniform(0.5, 1, 3).astype(np.float32)
    given = {"quantized_data": data, "zero_point": zero, "scale": scale, "axis": np.int32(-1)}
    (found,) = fold("constexpr_affine_dequantize", given)
    same(found, defs[16].constexpr_affine_dequantize.decompress(data, zero, scale, -1))


BYTES, TABLE = np.zeros(4, np.uint8), np.zeros((1, 4, 1), np.float16)


@pytest.mark.parametrize(
    ("op", "given", "says"),
    [
        ("constexpr_other", {}, "constexpr_other: no such op"),
        ("constexpr_lut_to_dense", {"lut": TABLE}, "parameters do not fit: got ['lut']"),
        ("constexpr_cast", {"source_val": TABLE, "x": TABLE}, "parameters do not fit"),
        ("constexpr_lut_to_dense", {"indices": BYTES + 4, "lut": TABLE}, "an index is in no table"),
        ("constexpr_lut_to_dense", {"indices": BYTES, "lut": TABLE[0]}, "tables do not cover"),
        (
            "constexpr_lut_to_dense",
            {"indices": BYTES, "lut": np.zeros(2, np.float16), "shape": np.uint32([4, 0])},
            "not a shape",
        ),
        (
            "constexpr_lut_to_dense",
            {"indices": BYTES, "lut": np.zeros(3, np.float16), "shape": np.uint32([4])},
            "not a table: got (3,)",
        ),
        (
            "constexpr_sparse_to_dense",
            {"nonzero_data": BYTES, "mask": BYTES},
            "as many numbers",
        ),
        (
            "constexpr_sparse_to_dense",
            {"nonzero_data": BYTES, "mask": BYTES, "shape": np.uint32([99])},
            "not as many bytes",
        ),
    ],
)
def test_what_does_not_fit_is_refused(op, given, says):
    with pytest.raises(OrionError) as caught:
        fold(op, given)
    assert says in str(caught.value)


def test_a_text_unpacks_what_it_holds_and_refuses_what_lies_in_a_file():
    nodes = {"nonzero_data": const([3, 4], DType.INT8), "mask": const([0, 1, 1], DType.UINT8)}
    args = MilArgs("constexpr_sparse_to_dense", nodes=nodes, literals={}, tuples={}, opset=18)
    (found,) = read_packed(args)
    assert found.op.value.tolist() == [0, 3, 4]
    assert args.leftover == ()
    nodes["mask"] = weight("mask", TensorType(DType.UINT8, (3,)))
    args = MilArgs("constexpr_sparse_to_dense", nodes=nodes, literals={}, tuples={}, opset=18)
    with pytest.raises(MilError, match="mask is not in the text\n  hint: import the package"):
        read_packed(args)
