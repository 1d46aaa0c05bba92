"""A file that is written to after it was opened is refused, not read half old and half new."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from toys import toy_llama
from weightfiles import Gguf, llama_tensors

from orion_ane.errors import CheckpointError
from orion_ane.models.weights import load_checkpoint


@pytest.fixture(params=["safetensors", "gguf"])
def file(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> Path:
    if request.param == "safetensors":
        return toy_llama(tmp_path) / "model.safetensors"
    return Gguf().add_llama(llama_tensors(rng)).write(tmp_path / "model.gguf")


def model_of(file: Path) -> Path:
    return file.parent if file.suffix == ".safetensors" else file


def shorten(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)  # whoever reads the rest is ended by a signal


def overwrite(file: Path) -> None:
    found = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-100, os.SEEK_END)
        opened.write(bytes(100))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns + 10**9))  # clocks may be coarse


@pytest.mark.parametrize("change", [shorten, overwrite])
def test_a_file_that_was_written_to_is_named(file, change) -> None:
    tensors = load_checkpoint(model_of(file)).tensors
    change(file)
    with pytest.raises(CheckpointError, match="changed after it was opened") as error:
        tensors["norm"]
    assert error.value.where == str(file)


def test_a_file_that_was_replaced_or_removed_is_read_as_it_was(file, tmp_path) -> None:
    want = load_checkpoint(model_of(file)).tensors["norm"].tolist()
    tensors = load_checkpoint(model_of(file)).tensors
    other = tmp_path / "other"
    shutil.copy(file, other)
    shorten(other)
    other.replace(file)
    assert tensors["norm"].tolist() == want
    file.unlink()
    assert tensors["norm"].tolist() == want
