from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arrays, types

from orion_ane.ane.layout import (
    from_surface,
    pack,
    row_stride,
    surface_bytes,
    to_surface,
    unpack,
)
from orion_ane.errors import ShapeError
from orion_ane.types import DType, TensorType


def test_columns_become_channels():
    rows = np.arange(6, dtype=np.float16).reshape(2, 3)  # S = 2, C = 3
    port = pack(rows)
    assert port.shape == (1, 3, 1, 2)
    assert port[0, :, 0, 1].tolist() == [3, 4, 5]
    assert port.flags.c_contiguous


def test_spare_lanes_are_zero():
    port = pack(np.ones((2, 3), np.float32), lanes=5)
    assert port.shape == (1, 3, 1, 5)
    assert port[..., 2:].max() == 0
    assert port[..., :2].min() == 1


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3))
def test_packing_comes_back(S, C, spare):
    rows = np.random.default_rng(S).normal(size=(S, C)).astype(np.float32)
    found = unpack(pack(rows, S + spare), S)
    np.testing.assert_array_equal(found, rows, strict=True)
    assert found.flags.c_contiguous
    assert unpack(pack(rows, S + spare)).shape == (S + spare, C)


def test_what_is_no_column_matrix_or_port_is_refused():
    with pytest.raises(ShapeError, match="not a matrix"):
        pack(np.ones(3))
    with pytest.raises(ShapeError, match="more rows than lanes: got 3, want at most 2"):
        pack(np.ones((3, 1)), lanes=2)
    with pytest.raises(ShapeError, match="not a packed port"):
        unpack(np.ones((1, 2, 2, 1)))
    for count in (4, -1):
        with pytest.raises(ShapeError, match=f"more rows than lanes: got {count}, want at most 3"):
            unpack(np.ones((1, 2, 1, 3)), count)


def test_six_halves_a_row_are_64_bytes_apart_case_a21(rng):
    of = TensorType(DType.FP16, (1, 4, 1, 6))
    value = rng.normal(size=of.shape).astype(np.float16)
    surface = to_surface(value)
    assert (row_stride(of), surface_bytes(of), surface.size) == (64, 256, 256)
    assert surface[64:76].tobytes() == value[0, 1].tobytes()
    assert surface[12:64].max() == 0
    np.testing.assert_array_equal(from_surface(surface, of), value, strict=True)


@pytest.mark.parametrize(
    ("dtype", "size", "stride"),
    [("fp16", 1, 64), ("fp16", 32, 64), ("fp16", 33, 128), ("fp32", 16, 64), ("bool", 65, 128)],
)
def test_rows_are_whole_64_bytes(dtype, size, stride):
    assert row_stride(TensorType(DType(dtype), (3, size))) == stride


def test_768_rows_of_one_position_are_49152_bytes():
    """The surface that was taken for a minimum of 48 KiB (ane-facts, 0.5)."""
    assert surface_bytes(TensorType(DType.FP16, (1, 768, 1, 1))) == 49152


@given(st.data())
def test_a_surface_gives_its_value_back(data):
    of = data.draw(types(tuple(DType)))
    value = data.draw(arrays(of))
    surface = to_surface(value)
    assert surface.size == surface_bytes(of)
    np.testing.assert_array_equal(from_surface(surface, of), value, strict=True)


def test_a_strided_value_is_gathered(rng):
    value = rng.normal(size=(4, 6)).astype(np.float16).T
    of = TensorType.of(value)
    np.testing.assert_array_equal(from_surface(to_surface(value), of), value, strict=True)


def test_a_surface_of_another_size_is_refused():
    of = TensorType(DType.FP16, (4, 6))
    with pytest.raises(ShapeError, match="wrong surface size: got 48, want 256"):
        from_surface(np.zeros(48, np.uint8), of)
