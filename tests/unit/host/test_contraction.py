from __future__ import annotations

import numpy as np
import pytest

from orion_ane.host.contraction import add_looked_up, contraction


@pytest.mark.parametrize("stored", [np.float16, np.float32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_weight_gradient_sums_over_lanes(stored, dtype, rng):
    x = rng.normal(size=(1, 5, 1, 64)).astype(stored)
    dy = rng.normal(size=(1, 3, 1, 64)).astype(stored)
    found = contraction(x, dy, dtype=dtype)
    assert found.dtype == dtype
    want = np.einsum("os,is->oi", dy[0, :, 0].astype(np.float64), x[0, :, 0].astype(np.float64))
    np.testing.assert_allclose(found, want, atol=1e-5 if dtype is np.float32 else 1e-12)


def test_sums_of_halves_do_not_stop_growing():
    ones = np.ones((1, 1, 1, 4096), np.float16)  # fp16 counts no further than 2048 by ones
    assert contraction(ones, ones).item() == 4096
    large = np.full((1, 1, 1, 4), 60000, np.float16)
    assert contraction(large, large).item() == 4 * 3.6e9


def test_a_token_that_comes_twice_learns_twice():
    table = np.ones((4, 2), np.float32)
    add_looked_up(table, np.array([3, 1, 3]), np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    assert table.tolist() == [[1, 1], [4, 5], [1, 1], [7, 9]]


def test_lookups_agree_with_a_sum_one_by_one(rng):
    ids = rng.integers(0, 9, 50)
    dy = rng.normal(size=(50, 3)).astype(np.float32)
    found, want = np.zeros((9, 3), np.float32), np.zeros((9, 3))
    add_looked_up(found, ids, dy)
    np.add.at(want, ids, dy.astype(np.float64))
    np.testing.assert_allclose(found, want, atol=1e-5)
    add_looked_up(found, ids[:0], dy[:0])
    np.testing.assert_allclose(found, want, atol=1e-5)
