from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.mil.blob import Blob, BlobDType
from orion_ane.mil.subbyte import pack_bits, packed_size, sign_extended, unpack_bits

WIDTHS = (1, 2, 3, 4, 6)


@given(st.sampled_from(WIDTHS), st.lists(st.integers(0, 63), max_size=70))
def test_bits_lie_in_the_order_of_the_elements_lowest_first(bits, elements):
    values = np.array([e % (1 << bits) for e in elements], np.uint8)
    each = np.unpackbits(values.reshape(-1, 1), axis=1, bitorder="little", count=bits)
    expected = np.packbits(each.ravel(), bitorder="little")
    packed = pack_bits(values, bits)
    np.testing.assert_array_equal(packed, expected)
    assert packed.size == packed_size(values.size, bits)
    np.testing.assert_array_equal(unpack_bits(packed, bits, values.size), values)


@pytest.mark.parametrize("count", range(20))
def test_int4_keeps_every_value(count):
    values = (np.arange(count) % 16 - 8).astype(np.int8)
    np.testing.assert_array_equal(Blob.of(values, BlobDType.INT4).array(), values, strict=True)


def test_the_sign_is_the_highest_bit():
    assert sign_extended(np.arange(16, dtype=np.uint8), 4).tolist() == [*range(8), *range(-8, 0)]
    assert sign_extended(np.arange(8, dtype=np.uint8), 3).tolist() == [*range(4), *range(-4, 0)]


def test_what_stands_in_the_unused_bits_is_not_read():
    assert Blob(BlobDType.UINT3, b"\xd1\xd8", 5).array().tolist() == [1, 2, 3, 4, 5]
