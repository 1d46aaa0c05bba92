"""Sums of outer products over lanes, added where they belong."""

from __future__ import annotations

import numpy as np
import pytest

from orion_ane.engine.contraction import Outer, add_all
from orion_ane.engine.threads import Threads


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("outer", "inner", "lanes"), [(1, 1, 1), (40, 33, 17), (900, 70, 300)])
def test_products_are_added_to_parts_of_a_tensor_alike_on_any_number_of_threads(
    outer, inner, lanes, dtype, rng
):
    dy = rng.standard_normal((outer, lanes)).astype(dtype)
    x = rng.standard_normal((inner, lanes)).astype(dtype)
    found = []
    for count in (1, 3):
        tensor = np.ones((outer + 2, inner + 5), np.float32)
        threads = Threads(count)
        with threads.running():
            add_all([Outer(dy, x, tensor[1:-1, 2:-3])], threads)
        found.append(tensor)
    want = np.ones(tensor.shape)
    want[1:-1, 2:-3] += dy.astype(np.float64) @ x.astype(np.float64).T
    np.testing.assert_allclose(found[0], want, atol=1e-5 * np.abs(want).max() * 4)
    np.testing.assert_array_equal(found[0], found[1])
