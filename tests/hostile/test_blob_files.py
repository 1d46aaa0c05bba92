"""Broken blob files: a MilError that names the place, never a crash, a hang or a wrong array."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orion_ane.errors import MilError
from orion_ane.mil.blob import Blob, BlobDType, read_blob, read_blobs, write_blobs

CONTENT = (
    Blob.of(np.arange(40, dtype=np.float16)),
    Blob.of(np.array([1, 2, 3, 4, 5], np.uint8), BlobDType.UINT3),
    Blob.of(np.arange(-3, 3, dtype=np.int32)),
)
FILE, OFFSETS = write_blobs(CONTENT)


def changed(at: int, layout: str, *values: int) -> bytes:
    file = bytearray(FILE)
    struct.pack_into("<" + layout, file, at, *values)
    return bytes(file)


SECOND = OFFSETS[1]


@pytest.mark.parametrize(
    ("file", "offset", "message"),
    [
        (b"", 64, "blob file: too short: got 0 bytes"),
        (FILE[:63], 64, "blob file: too short: got 63 bytes"),
        (changed(4, "I", 1), 64, "blob file: wrong version at byte 4: got 1, want 2"),
        (FILE, 0, "blob at byte 0: no such place"),
        (FILE, -64, "blob at byte -64: no such place"),
        (FILE, 65, "blob at byte 65: no such place"),
        (FILE, 128, "blob at byte 128: no metadata here: got 0x3c000000"),
        (FILE, 1 << 70, "metadata past the end"),
        (FILE[:127], 64, "blob at byte 64: metadata past the end"),
        (changed(64, "I", 0xDEADBEEE), 64, "blob at byte 64: no metadata here: got 0xdeadbeee"),
        (changed(68, "I", 0), 64, "blob at byte 64: no such dtype: got 0, want 1 to 17"),
        (changed(68, "I", 18), 64, "no such dtype: got 18"),
        (changed(72, "Q", 2**64 - 1), 64, "data past the end: got 18446744073709551615 bytes"),
        (changed(72, "Q", 5), 64, "not whole fp16 elements: got 5 bytes"),
        (changed(80, "Q", 2**64 - 64), 64, "data past the end"),
        (changed(80, "Q", 130), 64, "data misaligned: got 130"),
        (changed(80, "Q", 0), 64, "data over a header or another blob: got 80 bytes at 0"),
        (changed(72, "QQ", 40, 0), 64, "data over a header or another blob: got 40 bytes at 0"),
        (changed(80, "Q", 64), 64, "data over a header or another blob"),
        (changed(SECOND + 16, "Q", SECOND), SECOND, "data over a header or another blob"),
        (changed(SECOND + 24, "Q", 8), SECOND, "not whole uint3 elements: got 2 bytes less 8 bits"),
        (changed(SECOND + 24, "Q", 0), SECOND, "not whole uint3 elements"),
        (changed(SECOND + 8, "QQQ", 0, 384, 7), SECOND, "not whole uint3 elements"),
        (changed(68, "IQQQ", 9, 2, 128, 8), 64, "blob at byte 64: not whole uint1 elements"),
        (changed(SECOND + 24, "Q", 2**64 - 1), SECOND, "not whole uint3 elements"),
    ],
)
def test_a_damaged_blob_is_refused_where_it_lies_W13(file, offset, message):
    with pytest.raises(MilError) as caught:
        read_blob(file, offset)
    assert message in str(caught.value)


@pytest.mark.parametrize("size", range(len(FILE)))
def test_a_truncated_file_is_refused(size):
    with pytest.raises(MilError):
        read_blobs(FILE[:size])


@pytest.mark.parametrize("count", [4, 5, 1000, 2**31, 2**32 - 1])
def test_an_absurd_count_is_refused_at_once(count):
    with pytest.raises(MilError):
        read_blobs(changed(0, "I", count))


def test_an_absurd_count_of_a_large_file_is_refused_at_once():
    with pytest.raises(MilError, match="absurd count: got 4294967295"):
        read_blobs(struct.pack("<II", 2**32 - 1, 2) + bytes(1 << 20))


@pytest.mark.parametrize("start", [128, 64, 0], ids=["the first's data", "its metadata", "header"])
def test_overlapping_blobs_are_refused(start):
    with pytest.raises(MilError, match="data over a header or another blob"):
        read_blobs(changed(SECOND + 16, "Q", start))


def test_a_cycle_of_blobs_ends():
    """The second blob's data would end where the second's own metadata begins, again and again."""
    file = changed(SECOND + 8, "QQ", 64, SECOND - 64)
    with pytest.raises(MilError, match=f"blob at byte {SECOND}: data over"):
        read_blobs(file)
    empty = changed(SECOND + 8, "QQQ", 0, SECOND, 0)
    with pytest.raises(MilError, match=f"blob at byte {SECOND}: data over"):
        read_blobs(empty)


def test_bytes_with_gaps_are_refused():
    with pytest.raises(MilError, match="bytes with gaps"):
        read_blobs(memoryview(bytes(FILE) * 2)[::2])


def test_a_file_may_come_as_wider_elements():
    padded = bytes(FILE).ljust(-(-len(FILE) // 8) * 8, b"\0")
    assert read_blobs(memoryview(np.frombuffer(padded, np.uint64))) == CONTENT


flips = st.lists(
    st.tuples(st.integers(0, len(FILE) - 1), st.integers(0, 255)), min_size=1, max_size=4
)


def read_within_bounds(file: bytes) -> None:
    """Read everything; what is read must be as long as it says and come from the file."""
    blobs = []
    for read in (read_blobs, *(lambda f, o=o: (read_blob(f, o),) for o in range(0, len(file), 64))):
        with suppress(MilError):
            blobs += read(file)
    whole = np.frombuffer(file, np.uint8)
    for blob in blobs:
        array = blob.array()
        assert array.shape == (blob.count,)
        assert array.nbytes <= 8 * len(file)
        assert not len(blob.data) or np.shares_memory(np.frombuffer(blob.data, np.uint8), whole)


@given(flips)
def test_flipped_bytes_give_an_error_or_a_read_within_bounds(flips):
    file = bytearray(FILE)
    for at, value in flips:
        file[at] = value
    read_within_bounds(bytes(file))


@given(
    st.sampled_from(OFFSETS),
    st.sampled_from(["I4", "Q8", "Q16", "Q24"]),
    st.one_of(
        st.integers(0, 2**64 - 1), st.integers(0, 700), st.integers(0, 10).map(lambda n: n * 64)
    ),
)
@example(64, "Q16", 192)
def test_any_field_of_the_metadata_may_hold_anything(offset, field, value):
    layout, at = field[0], int(field[1:])
    read_within_bounds(changed(offset + at, layout, value % 2**32 if layout == "I" else value))


@given(st.binary(max_size=400))
def test_random_bytes_are_refused_or_read_within_bounds(data):
    read_within_bounds(data)
    read_within_bounds(struct.pack("<II56x", 3, 2) + struct.pack("<I", 0xDEADBEEF) + data)
