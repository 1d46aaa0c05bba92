"""Files go both ways between us and coremltools' own storage reader and writer."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.mil.blob import Blob, BlobDType, pack, read_blob, read_blobs, write_blobs

NAME = "coremltools.libmilstoragepython"


@pytest.fixture(scope="module")
def storage():
    """The extension module alone: importing coremltools itself would import torch."""
    if NAME not in sys.modules:
        path = next(str(f.locate()) for f in files("coremltools") if "libmilstorage" in f.name)
        spec = importlib.util.spec_from_file_location(NAME, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[NAME] = module
    return sys.modules[NAME]


# Our type, their method's name, the numpy type they hand over, the bounds of its values.
TYPES = (
    (BlobDType.FP16, "fp16", np.uint16, (0, 0x7BFF)),
    (BlobDType.FP32, "float", np.float32, (-1000, 1000)),
    (BlobDType.UINT8, "uint8", np.uint8, (0, 255)),
    (BlobDType.INT8, "int8", np.int8, (-128, 127)),
    (BlobDType.INT16, "int16", np.int16, (-(2**15), 2**15 - 1)),
    (BlobDType.UINT16, "uint16", np.uint16, (0, 2**16 - 1)),
    (BlobDType.INT4, "int4", np.int8, (-8, 7)),
    (BlobDType.UINT1, "uint1", np.uint8, (0, 1)),
    (BlobDType.UINT2, "uint2", np.uint8, (0, 3)),
    (BlobDType.UINT3, "uint3", np.uint8, (0, 7)),
    (BlobDType.UINT4, "uint4", np.uint8, (0, 15)),
    (BlobDType.UINT6, "uint6", np.uint8, (0, 63)),
    (BlobDType.INT32, "int32", np.int32, (-(2**31), 2**31 - 1)),
    (BlobDType.UINT32, "uint32", np.uint32, (0, 2**32 - 1)),
)
HAVE_NO_METHOD = {BlobDType.BF16, BlobDType.FP8E4M3FN, BlobDType.FP8E5M2}


def test_every_type_that_coremltools_has_is_compared():
    assert {row[0] for row in TYPES} == set(BlobDType) - HAVE_NO_METHOD


@st.composite
def contents(draw):
    """Some blobs: a row of TYPES and its values."""
    found = []
    for row in draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=6)):
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        lo, hi = row[3]
        size = draw(st.integers(1, 150))
        found.append((row, rng.integers(lo, hi, size, endpoint=True).astype(row[2])))
    return found


def ours(dtype: BlobDType, values):
    """Values in the type that we hand over: fp16 as such, and not as its bits."""
    return values.view(np.float16) if dtype is BlobDType.FP16 else values


@given(contents())
def test_coremltools_reads_what_we_write(storage, tmp_path_factory, contents):
    path = tmp_path_factory.mktemp("blobs") / "weight.bin"
    file, offsets = write_blobs([Blob.of(ours(dtype, v), dtype) for (dtype, *_), v in contents])
    path.write_bytes(file)
    reader = storage._BlobStorageReader(str(path))
    for ((_, name, *_), values), offset in zip(contents, offsets, strict=True):
        found = getattr(reader, f"read_{name}_data")(offset)
        np.testing.assert_array_equal(found, values, strict=True)


@given(contents())
def test_we_read_what_coremltools_writes(storage, tmp_path_factory, contents):
    path = tmp_path_factory.mktemp("blobs") / "weight.bin"
    writer = storage._BlobStorageWriter(str(path))
    offsets = [getattr(writer, f"write_{row[1]}_data")(values) for row, values in contents]
    del writer
    file = path.read_bytes()
    blobs = read_blobs(file)
    assert blobs == tuple(read_blob(file, offset) for offset in offsets)
    for ((dtype, *_), values), blob in zip(contents, blobs, strict=True):
        assert blob.dtype is dtype
        np.testing.assert_array_equal(blob.array(), ours(dtype, values), strict=True)
    assert write_blobs(blobs)[0] == file


def test_coremltools_reads_a_strided_array_that_we_packed(storage, tmp_path, rng):
    array = rng.normal(size=(6, 4)).astype(np.float32)
    file = pack({"w": array.T})
    (tmp_path / "weight.bin").write_bytes(file.data)
    reader = storage._BlobStorageReader(str(tmp_path / "weight.bin"))
    np.testing.assert_array_equal(reader.read_float_data(64).reshape(4, 6), array.T)
