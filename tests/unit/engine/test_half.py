"""fp16 in and out of fp32 arrays: the kernels against numpy, on every fp16 value."""

from __future__ import annotations

import numpy as np
import pytest

from orion_ane.engine.half import KERNEL_ELEMENTS, narrow, rounder, widen

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FEW, MANY = KERNEL_ELEMENTS - 1, KERNEL_ELEMENTS


def singles(rng: np.random.Generator) -> np.ndarray:
    """fp32 values of every exponent, all ties between neighbouring fp16 values, and oddities."""
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    finite = EVERY_HALF[np.isfinite(EVERY_HALF)].astype(np.float32)
    ties = (np.sort(finite)[1:] + np.sort(finite)[:-1]) / 2
    odd = np.array([65519.9, 65520, -65520, 5.96e-8, 2.98e-8, 1e-8, -0.0, np.inf, np.nan], "f4")
    return np.concatenate([bits.view(np.float32), ties, odd])  # case N17 is among them


@pytest.mark.parametrize("size", [1, FEW, MANY, 1 << 16])
def test_widening_is_numpys(size):
    np.testing.assert_array_equal(widen(EVERY_HALF[-size:]), EVERY_HALF[-size:].astype(np.float32))


@pytest.mark.parametrize("size", [1, FEW, MANY, 1 << 30])
def test_rounding_and_narrowing_are_numpys(size, rng):
    x = singles(rng)[-size:]
    with np.errstate(all="ignore"):
        want = x.astype(np.float16)
        np.testing.assert_array_equal(narrow(x), want)
        got = rounder(x.size)(x.copy())
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(x[~np.isnan(got)]))


@pytest.mark.parametrize("size", [4, 32])
def test_views_of_any_strides_are_converted_in_their_own_order(size, rng):
    x = rng.standard_normal((size, 3, size), dtype=np.float32).transpose(2, 0, 1)
    h = x.astype(np.float16)
    np.testing.assert_array_equal(widen(h[::2]), h[::2].astype(np.float32))
    np.testing.assert_array_equal(narrow(x[:, 1:]), h[:, 1:])
    np.testing.assert_array_equal(rounder(x.size)(x.copy("K")), h.astype(np.float32))


def test_what_is_read_may_be_read_only(rng):
    x = rng.standard_normal(2 * MANY, dtype=np.float32)
    x.flags.writeable = False
    half = narrow(x)
    half.flags.writeable = False
    np.testing.assert_array_equal(widen(half), x.astype(np.float16).astype(np.float32))
