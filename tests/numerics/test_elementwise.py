from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion_ane.ane import rounding
from orion_ane.engine.macs import elementwise
from orion_ane.types import Array

NAMES = ["add", "subtract", "multiply"]


def bits(seed: int, *shape: int) -> Array:
    found = np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16)
    return np.asarray(found, np.uint16).view(np.float16)


def same(y: Array, z: Array) -> bool:
    return y.dtype == z.dtype and bool((y.view(np.uint16) == z.view(np.uint16)).all())


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32 - 1), shift=st.integers(0, 40))
@settings(max_examples=30)
def test_a_kernel_and_numpy_say_the_same(name: str, seed: int, shift: int) -> None:
    x, y = bits(seed, 5000), bits(seed + 1, 5000)
    with np.errstate(invalid="ignore"):  # NaN
        close = (y * 2.0**-shift).astype(np.float16)  # so that small products occur too
    for other in (y, close):
        found = getattr(elementwise, name)(x, other)
        assert same(found, getattr(rounding, name)(x, other))


SHAPES = [  # an operand is read as it is, or laid out in the shape of the result
    *(((3, 1, 40), (5, 1)), ((2, 3, 4), (2, 1, 4)), ((), (2, 3)), ((1, 7), ())),
    *(((2, 3, 4), (1, 3, 1)), ((2, 3, 4), (3, 4)), ((2, 3, 4), (2, 3, 1)), ((1, 1), ())),
    *(((1, 5, 1, 6), (5, 1, 1)), ((1,), (1, 1, 9))),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_operands_broadcast_and_fp32_stays_fp32(
    name: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    x, y = bits(1, *left), bits(2, *right)
    function = getattr(elementwise, name)
    half, single = function(x, y), function(x.astype(np.float32), y.astype(np.float32))
    assert half.shape == single.shape == np.broadcast_shapes(left, right)
    assert single.dtype == np.float32
    assert same(half, single.astype(np.float16))
    assert same(half, getattr(rounding, name)(x, y))
