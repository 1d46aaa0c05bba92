"""Matrices of int8 codes: Q8_0 as the format has it, and a scale a row."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from orion_ane.errors import CheckpointError
from orion_ane.models.weights.quantised import by_block, by_channel, of_file


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
