"""Matrices of int8 codes: Q8_0 as the format has it, and a scale a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from weightfiles import Gguf, llama_tensors

from orion_ane.errors import CheckpointError
from orion_ane.generate.quantising import quantised
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import gguf_file, load_checkpoint
from orion_ane.models.weights.quantised import Quantised, by_block, by_channel, of_file
from orion_ane.nn.blocks import Precision, scale_of
from orion_ane.types import DType


def matrix(rows: int = 40, columns: int = 96) -> np.ndarray:
    found = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    found[3, :32] = 0
    found[5] *= 1e-6
    return found


def test_blocks_are_made_as_the_format_makes_them() -> None:
    wide = matrix()
    raw = quantize(wide, GGMLQuantizationType.Q8_0)
    want, found = of_file(raw.reshape(-1), wide.shape), by_block("w", wide, 32)
    assert np.array_equal(found.codes, want.codes)
    assert np.array_equal(found.scale, want.scale)


def test_blocks_of_a_file_stand_for_what_the_format_says_and_stay_there() -> None:
    raw = quantize(matrix(), GGMLQuantizationType.Q8_0)
    found = of_file(raw.reshape(-1), (40, 96))
    assert np.array_equal(found[:], dequantize(raw, GGMLQuantizationType.Q8_0))
    assert np.array_equal(found[np.array([7, 1])], found[:][[7, 1]])
    assert np.shares_memory(found.codes, raw)
    assert found.nbytes == raw.nbytes


@pytest.mark.parametrize("block", [4, 8, 16, 32])
def test_finer_blocks_stand_for_the_same_numbers(block: int) -> None:
    whole = by_block("w", matrix(), 32)
    assert np.array_equal(whole.finer(block)[:], whole[:])


def test_a_scale_a_row_is_off_by_half_a_step() -> None:
    wide = matrix()
    found = by_channel("w", wide)
    step = np.abs(wide).max(axis=1, keepdims=True) / 127
    assert (np.abs(found[:] - wide) <= step * 0.5001).all()
    assert np.abs(found.codes).max() == 127


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_numbers_that_are_not_finite_have_no_codes(bad: float) -> None:
    wide = matrix()
    wide[2, 2] = bad
    for make in (lambda: by_channel("w", wide), lambda: by_block("w", wide, 32)):
        with pytest.raises(CheckpointError, match="w: numbers that are not finite"):
            make()


def test_a_file_of_blocks_becomes_weights_of_the_same_numbers_and_is_never_widened(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = llama_tensors(rng)
    path = Gguf().add_llama(tensors, kind=GGMLQuantizationType.Q8_0).write(tmp_path / "m.gguf")
    plain = load_checkpoint(path)
    decoder = decoder_of(plain.config)
    want = decoder.weights(plain.tensors, Precision(DType.FP32, DType.FP32))
    embed = plain.tensors["embed"]
    monkeypatch.setattr(gguf_file, "_dequantised", None)  # whoever calls it fails
    packed = quantised(decoder, load_checkpoint(path), Precision(DType.FP32, DType.INT8, 32))
    files = [*packed.bodies.values(), packed.head]
    seen, size, elements = 0, 0, 0
    for file in files:
        for label, of in file.types.items():
            if of.dtype is not DType.INT8:
                continue
            codes, scale = file.array(label), file.array(scale_of(label))
            rows, columns = of.shape[:2]
            blocks = scale.shape[1]
            held = Quantised(codes.reshape(rows, blocks, -1), scale.reshape(rows, blocks))
            assert np.array_equal(held[:], want[label].reshape(rows, columns)), label
            seen, size, elements = seen + 1, size + held.nbytes, elements + codes.size
    assert seen == sum(array.ndim == 2 for array in tensors.values()) - ("head" in tensors)
    assert size < 1.1 * elements
    assert np.array_equal(packed.host["embed"][np.array([5, 1])], embed[[5, 1]])
