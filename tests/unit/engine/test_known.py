from __future__ import annotations

import numpy as np
import pytest

from orion_ane.engine.known import BLOCK, packed


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2 * BLOCK + 3, 5, 1, 1), (1, 0, 2, 3)),
        ((BLOCK, 7), (1, 0)),
        ((1, BLOCK + 1, 1, 3), (0, 3, 2, 1)),
        ((4, 3, 2), (2, 0, 1)),
        ((4, 3, 2), (0, 1, 2)),
        ((1, 9, 1), (1, 0, 2)),
        ((1, 1), (1, 0)),
    ],
)
def test_what_is_moved_is_laid_out_bit_for_bit(shape, axes, dtype, rng):
    moved = rng.integers(-1000, 1000, shape).astype(dtype).transpose(axes)
    found = packed(moved)
    assert found.flags.c_contiguous
    assert (found.dtype, found.shape) == (moved.dtype, moved.shape)
    assert found.tobytes() == moved.tobytes()


def test_what_lies_well_is_not_copied():
    array = np.zeros((3, 4))
    assert np.shares_memory(packed(array), array)
