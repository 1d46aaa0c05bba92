from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.errors import MilError
from orion_ane.mil.blob import (
    MAX_WEIGHT_BYTES,
    Blob,
    BlobDType,
    WeightFile,
    lay_out,
    pack,
    read_blob,
    read_blobs,
    write_blobs,
)

SUB_BYTE = ("uint1", "uint2", "uint3", "uint4", "uint6", "int4")

# As coremltools' writer lays them out (MIL reference, 2): dtype, code, values, padding bits, bytes.
GOLDEN = (
    ("fp16", 1, [1.0, 2.0, 3.0], 0, "003c00400042"),
    ("fp32", 2, [1.0, -2.0], 0, "0000803f000000c0"),
    ("uint8", 3, [1, 255], 0, "01ff"),
    ("int8", 4, [1, -1], 0, "01ff"),
    ("int16", 6, [1, -2], 0, "0100feff"),
    ("uint16", 7, [1, 65534], 0, "0100feff"),
    ("int4", 8, [-8, 7, -1], 4, "780f"),
    ("uint1", 9, [1, 0, 1, 1, 0, 0, 0, 0, 1], 7, "0d01"),
    ("uint2", 10, [0, 1, 2, 3, 3], 6, "e403"),
    ("uint4", 11, [1, 2, 15], 4, "210f"),
    ("uint3", 12, [1, 2, 3, 4, 5], 1, "d158"),
    ("uint6", 13, [1, 2, 63, 33, 5], 2, "81f08705"),
    ("int32", 14, [1, -2], 0, "01000000feffffff"),
    ("uint32", 15, [1, 2**32 - 2], 0, "01000000feffffff"),
)


def dtype_named(name: str) -> BlobDType:
    return BlobDType[name.upper()]


def numpy_of(name: str) -> np.dtype:
    plain = {"fp16": "float16", "fp32": "float32", "int4": "int8"}
    return np.dtype(plain.get(name, "uint8" if name in SUB_BYTE else name))


@pytest.mark.parametrize(("name", "code", "values", "padding", "data"), GOLDEN)
def test_a_file_has_the_golden_bytes(name, code, values, padding, data):
    blob = Blob.of(np.array(values, numpy_of(name)), dtype_named(name))
    file, offsets = write_blobs([blob])
    assert offsets == (64,)
    assert file[:64] == struct.pack("<II56x", 1, 2)
    size = len(bytes.fromhex(data))
    assert file[64:128] == struct.pack("<IIQQQ32x", 0xDEADBEEF, code, size, 128, padding)
    assert bytes(file[128:]).hex() == data


@pytest.mark.parametrize(("name", "code", "values", "padding", "data"), GOLDEN)
def test_golden_bytes_read_as_their_values(name, code, values, padding, data):
    packed = bytes.fromhex(data)
    metadata = struct.pack("<IIQQQ32x", 0xDEADBEEF, code, len(packed), 128, padding)
    blob = read_blob(struct.pack("<II56x", 1, 2) + metadata + packed, 64)
    array = blob.array()
    assert (blob.dtype, blob.count, blob.padding_bits) == (dtype_named(name), len(values), padding)
    assert array.dtype == numpy_of(name)
    assert array.tolist() == values


def test_the_table_of_codes_is_whole():
    assert sorted(dtype.code for dtype in BlobDType) == list(range(1, 18))


def test_a_lone_weight_is_160_bytes_and_its_metadata_at_64_case_w13():
    file = pack({"w": np.ones(16, np.float16)})
    assert len(file.data) == 160
    assert file.offsets == {"w": 64}
    assert bytes(file.data[64:68]) == b"\xef\xbe\xad\xde"
    assert struct.unpack_from("<I", file.data, 72) == (32,)
    assert struct.unpack_from("<Q", file.data, 80) == (128,)


def test_each_metadata_starts_the_next_line_of_64_bytes():
    blobs = [Blob.of(np.ones(n, np.uint8)) for n in (6, 64, 70, 1)]
    file, offsets = write_blobs(blobs)
    assert offsets == (64, 192, 320, 512)
    assert len(file) == 512 + 64 + 1
    assert [blob.count for blob in read_blobs(file)] == [6, 64, 70, 1]


def test_an_empty_blob_and_an_empty_file_are_legal():
    file, _ = write_blobs([])
    assert (len(file), read_blobs(file)) == (64, ())
    file, offsets = write_blobs([Blob.of(np.empty(0, np.float16)), Blob.of(np.ones(2, np.int8))])
    assert offsets == (64, 128)
    assert [blob.array().tolist() for blob in read_blobs(file)] == [[], [1, 1]]


def test_bf16_reads_as_the_upper_half_of_fp32_case_w07():
    blob = Blob(BlobDType.BF16, bytes.fromhex("803f49c07f7f0080"), 4)
    assert blob.array().dtype == np.float32
    assert blob.array().tolist()[:3] == [1.0, -3.140625, 3.3895313892515355e38]
    assert np.signbit(blob.array()[3])


def fp8(code: int, exponent_bits: int, bias: int) -> float:
    mantissa_bits = 7 - exponent_bits
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    part = mantissa / (1 << mantissa_bits)
    if exponent == 0:
        return sign * part * 2.0 ** (1 - bias)
    return sign * (1 + part) * 2.0 ** (exponent - bias)


def test_fp8_e4m3fn_reads_exactly():
    array = Blob(BlobDType.FP8E4M3FN, bytes(range(256)), 256).array()
    expected = [np.nan if c & 0x7F == 0x7F else fp8(c, 4, 7) for c in range(256)]
    np.testing.assert_array_equal(array, np.array(expected, np.float32))
    assert np.signbit(array[0x80])
    assert array[0x7E] == 448


def test_fp8_e5m2_reads_exactly():
    array = Blob(BlobDType.FP8E5M2, bytes(range(256)), 256).array()
    expected = np.array([fp8(c, 5, 15) for c in range(256)], np.float32)
    expected[[0x7C, 0xFC]] = np.inf, -np.inf
    expected[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("dtype", [BlobDType.BF16, BlobDType.FP8E4M3FN, BlobDType.FP8E5M2])
def test_types_that_numpy_lacks_are_written_from_their_bytes(dtype):
    blob = Blob(dtype, b"\x01\x02\x03\x04", 4 if dtype.bits == 8 else 2)
    file, (offset,) = write_blobs([blob])
    assert read_blob(file, offset) == blob
    with pytest.raises(MilError, match="not rounded to here"):
        Blob.of(np.ones(2, np.float32), dtype)


def test_reserved_fields_and_the_count_are_not_asked():
    file = bytearray(pack({"w": np.arange(4, dtype=np.float32)}).data)
    file[0:4] = struct.pack("<I", 77)  # a count nobody kept
    file[8:64] = b"\xaa" * 56
    file[88:128] = b"\xbb" * 40  # padding bits, which whole bytes have not, and the reserved
    assert read_blob(file, 64).array().tolist() == [0, 1, 2, 3]


def test_the_first_blob_is_where_the_engine_looks_for_it_W13():
    file = pack({"w": np.arange(4, dtype=np.float16)}).data
    assert bytes(file[64:68]) == b"\xef\xbe\xad\xde"
    assert struct.unpack_from("<QQ", file, 72) == (8, 128)
    assert np.frombuffer(file, np.float16, 4, 128).tolist() == [0, 1, 2, 3]


def test_the_data_offset_is_followed():
    file = bytearray(struct.pack("<II56x", 1, 2)).ljust(320)
    file[64:128] = struct.pack("<IIQQQ32x", 0xDEADBEEF, 6, 4, 256, 0)
    file[256:260] = struct.pack("<hh", 5, -5)
    assert read_blob(file, 64).array().tolist() == [5, -5]
    assert read_blobs(file)[0].array().tolist() == [5, -5]


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "u1", "i1", "i2", "u2", "i4", "u4"], ids=lambda d: np.dtype(d).name
)
def test_arrays_are_aligned_views_of_the_file(dtype, rng):
    array = rng.integers(0, 100, (3, 5)).astype(dtype)
    file = pack({"a": np.ones(3, np.int8), "w": array})
    found = file.array("w")
    np.testing.assert_array_equal(found, array, strict=True)
    assert np.shares_memory(found, np.frombuffer(file.data, np.uint8))
    assert found.__array_interface__["data"][0] % 64 == 0
    assert not found.flags.writeable


def test_strides_are_gathered_not_written_as_they_lie(rng):
    array = rng.normal(size=(5, 7, 3)).astype(np.float32)
    views = {"t": array.T, "back": array[::-1], "thin": array[:, ::2, 1]}
    views["wide"] = np.broadcast_to(array[:1], array.shape)
    file = pack(views)
    for label, view in views.items():
        np.testing.assert_array_equal(file.array(label), view, strict=True)
        np.testing.assert_array_equal(Blob.of(view).array(), view.ravel(), strict=True)


def test_a_file_cannot_be_written_through(rng):
    file = pack({"w": rng.normal(size=4).astype(np.float16)})
    assert file.data.readonly
    with pytest.raises(TypeError):
        file.data[0] = 1
    source = bytearray(file.data)
    assert not read_blob(source, 64).array().flags.writeable
    narrow = Blob.of(np.ones(5, np.uint8), BlobDType.UINT3)
    assert not narrow.array().flags.writeable
    assert write_blobs([narrow])[0].readonly


def test_gaps_are_zero(rng):
    sizes = [1, 63, 64, 65]
    arrays = {str(n): rng.integers(1, 9, n).astype(np.uint8) for n in sizes}
    file = pack(arrays)
    used = [(0, 64)]
    for label, offset in file.offsets.items():
        used += [(offset, offset + 64 + len(arrays[label]))]
    for (_, end), (start, _) in pairwise(used):
        assert not any(file.data[end:start])


def test_a_program_of_2147483648_bytes_is_the_limit_case_w11():
    assert MAX_WEIGHT_BYTES == 2147483648
    assert lay_out([MAX_WEIGHT_BYTES - 128]) == ((64,), MAX_WEIGHT_BYTES)
    with pytest.raises(MilError, match="2147483649 bytes, want at most 2147483648"):
        lay_out([MAX_WEIGHT_BYTES - 127])
    assert lay_out([MAX_WEIGHT_BYTES - 256, 64])[1] == MAX_WEIGHT_BYTES


def test_a_file_over_the_limit_is_refused_before_it_is_allocated():
    huge = np.broadcast_to(np.float16(0), (1 << 20, 1 << 10))  # 2 GiB that occupy two bytes
    with pytest.raises(MilError, match="too large for one program: got 2147483776"):
        pack({"w": huge})
    small = np.zeros(100, np.uint8)
    assert len(pack({"w": small}, limit=228).data) == 228
    with pytest.raises(MilError, match="got 228 bytes, want at most 227"):
        pack({"w": small}, limit=227)


@pytest.mark.parametrize(
    "array",
    [np.ones(2), np.ones(2, bool), np.ones(2, np.int64), np.ones((0, 2), np.float16)],
    ids=["fp64", "bool", "int64", "empty"],
)
def test_what_a_weight_cannot_be_is_refused_by_its_label(array):
    with pytest.raises(MilError, match="weight w7"):
        pack({"w7": array})


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (8, "INT4"),
        (-9, "INT4"),
        (-1, "UINT4"),
        (64, "UINT6"),
        (2, "UINT1"),
        (1000, "UINT3"),
        (0.5, "UINT2"),
        (256, "UINT8"),
        (0.5, "INT8"),
        (1e6, "FP16"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value, dtype):
    with pytest.raises(MilError, match="does not fit"):
        Blob.of(np.array([1, value]), BlobDType[dtype])


def test_bytes_must_be_as_many_as_the_elements_need():
    with pytest.raises(MilError, match="size and count disagree"):
        Blob(BlobDType.UINT3, b"12", 6)
    with pytest.raises(MilError, match="size and count disagree"):
        Blob(BlobDType.FP16, b"123", 1)


def test_a_label_that_is_not_in_the_file_is_named():
    with pytest.raises(MilError, match="weight nope: not in"):
        pack({"w": np.ones(1, np.float16)}).array("nope")


def test_equal_bytes_have_one_digest_and_others_another():
    a, b = pack({"w": np.ones(3, np.float16)}), pack({"v": np.ones(3, np.float16)})
    assert a.digest == b.digest == WeightFile("p", bytes(a.data)).digest
    assert a.digest != pack({"w": np.zeros(3, np.float16)}).digest


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_written_is_read(contents):
    blobs = [Blob(BlobDType.UINT8, content, len(content)) for content in contents]
    file, offsets = write_blobs(blobs)
    assert read_blobs(file) == tuple(blobs)
    assert [read_blob(file, offset) for offset in offsets] == blobs
