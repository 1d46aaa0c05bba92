from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from orion_ane.host.pages import forget
from orion_ane.mil import pack
from orion_ane.models.weights import to_fp16

MB = 1 << 20


def of_files() -> int:
    """The bytes of files that this process has in memory."""
    status = Path("/proc/self/status").read_text()
    (line,) = (text for text in status.splitlines() if text.startswith("RssFile:"))
    return int(line.split()[1]) * 1024


@pytest.fixture
def file(tmp_path, rng):
    path = tmp_path / "numbers"
    rng.standard_normal(8 * MB, np.float32).astype(np.float16).tofile(path)
    return path


def mapped(path, mode="r"):
    return np.asarray(np.memmap(path, np.float16, mode)).reshape(-1, 1024)


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_numbers_of_a_file_are_forgotten_and_read_again(file):
    array = mapped(file)
    before, total = of_files(), array.astype(np.float64).sum()
    assert of_files() - before > 12 * MB
    forget(array)
    assert of_files() - before < 2 * MB
    assert array.astype(np.float64).sum() == total


@pytest.mark.parametrize("part", [np.s_[3:5], np.s_[:, :7], np.s_[:0], np.s_[::-1]])
def test_a_part_of_a_file_can_be_forgotten_whatever_its_shape(file, part):
    array = mapped(file)
    want = np.fromfile(file, np.float16).reshape(-1, 1024)
    forget(array[part])
    np.testing.assert_array_equal(array, want)


def test_what_was_written_to_a_private_map_is_kept(file):
    array = mapped(file, "c")
    array[:] = 3
    forget(array)
    assert (array == 3).all()


def test_what_lies_in_memory_is_kept():
    array = np.arange(10_000.0)
    forget(array)
    assert array.tolist() == list(range(10_000))


@linux
def test_a_model_is_packed_without_its_file_beside_it(file):
    array = mapped(file)
    parts = {str(i): array[i * 1024 : (i + 1) * 1024] for i in range(8)}
    before = of_files()
    rounded, _ = to_fp16(parts)
    assert of_files() - before < 2 * MB
    packed = pack(rounded)
    assert of_files() - before < 2 * MB
    for name, part in parts.items():
        np.testing.assert_array_equal(packed.array(name), part)
