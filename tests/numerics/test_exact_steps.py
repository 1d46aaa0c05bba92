"""What has a kernel of its own among the exact steps, bit for bit against the rule in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion_ane.ane.numerics import NUMERICS
from orion_ane.engine.exact.functions import curve_table, exact_function
from orion_ane.engine.exact.values import entered, entering, settled
from orion_ane.ir.node import Node, Op
from orion_ane.ops.arithmetic import RealDiv
from orion_ane.ops.curve import Exp
from orion_ane.ops.leaf import input_
from orion_ane.ops.reduction import ReduceMean, ReduceSum, Reduction
from orion_ane.types import Array, DType, TensorType

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def halves(seed: int, *shape: int) -> Array:
    """fp16 values in fp32 of any exponent, none of them NaN."""
    found = np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16)
    return entered(found.view(np.float16).astype(np.float32))


def computed(op: Op, *operands: Array) -> Array:
    """What the exact function of an op makes of fp16 values in fp32."""
    leaves = [input_(f"x{i}", TensorType(DType.FP16, x.shape)) for i, x in enumerate(operands)]
    return exact_function(Node(op, tuple(leaves)), NUMERICS["m4"])(*operands)


def settled_once(x: Array) -> Array:
    """fp64 to fp16: cut off in fp32, odd where that is not exact, so that no tie comes of it."""
    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
        bits = single.view(np.uint32)
        bits -= np.abs(single) > np.abs(x)
        bits |= single != x
    return settled(single)


def assert_same_bits(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("right", [(30, 40), (40,), (30, 1), ()])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_a_quotient_is_fp32s_settled(right: tuple[int, ...], seed: int) -> None:
    x, y = halves(seed, 30, 40), halves(seed + 1, *right)
    with np.errstate(all="ignore"):
        want = settled(np.divide(x, y + np.float32(0)))
    assert_same_bits(computed(RealDiv(), x, y), want)


@pytest.mark.parametrize("op", [ReduceSum, ReduceMean])
@pytest.mark.parametrize("axes", [(0,), (1,), (-1,), (1, 2), (0, 2), (0, -2, 2)])
@given(seed=st.integers(0, 2**32 - 1), shift=st.integers(0, 20))
@settings(max_examples=5, deadline=None)
def test_a_sum_is_exact_and_rounded_once(
    op: type[Reduction], axes: tuple[int, ...], seed: int, shift: int
) -> None:
    x = settled(halves(seed, 5, 6, 7) * np.float32(2.0**-shift))
    with np.errstate(all="ignore"):
        made = np.sum if op is ReduceSum else np.mean
        want = settled_once(made(x, axes, np.float64, keepdims=True))
    assert_same_bits(computed(op(axes), x), want)
    if axes == (0, 2):  # of another layout
        turned = np.ascontiguousarray(x.T).T
        assert_same_bits(computed(op(axes), turned), want)


def test_ties_of_a_mean_go_away_from_zero_and_none_comes_of_fp32() -> None:
    one, bit = 1.0, 2.0**-10
    x = np.array([[one, one + bit, -bit], [one, one + bit, 2.0**-24]], np.float32)
    sums = computed(ReduceSum((1,)), x)
    assert sums.ravel().tolist() == [2.0, 2.0 + 2 * bit]  # 2 + bit is a tie, less 2^-24 or more
    pair = np.array([[one, one + bit], [-one, -one - bit]], np.float32)
    assert computed(ReduceMean((1,)), pair).ravel().tolist() == [one + bit, -one - bit]


def test_a_curve_is_its_table_at_every_value() -> None:
    x = entered(EVERY_HALF.astype(np.float32))
    table = curve_table(Exp())
    assert_same_bits(computed(Exp(), x), table[x.astype(np.float16).view(np.uint16)])


@pytest.mark.parametrize("is_writable", [True, False])
def test_what_enters_is_fp16_without_nan(is_writable: bool) -> None:
    fed = EVERY_HALF.copy().reshape(256, 256)
    fed.flags.writeable = is_writable
    assert_same_bits(entering(fed), entered(fed.astype(np.float32)))
    assert_same_bits(entering(fed.T), entered(fed.T.astype(np.float32)))
