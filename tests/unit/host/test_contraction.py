from __future__ import annotations

import numpy as np

from orion_ane.host.contraction import add_looked_up


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
