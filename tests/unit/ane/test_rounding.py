from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.ane.rounding import add, away, away_twice, flushed, multiply, subtract

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = np.unique(HALVES[np.isfinite(HALVES)]).astype(np.float64)
MIDDLES = (FINITE[1:] + FINITE[:-1]) / 2

halves = st.integers(0, (1 << 16) - 1).map(lambda bits: np.uint16(bits).view(np.float16))
finite = halves.filter(np.isfinite)


def nearest(exact: Fraction, distance: Fraction) -> Fraction:
    steps = abs(exact) / distance
    size = int(steps + Fraction(1, 2)) * distance
    return size if exact >= 0 else -size


def last_place(exact: Fraction) -> Fraction:
    """The distance of numbers with 11 significant bits at this size."""
    e = 0
    while abs(exact) >= Fraction(2) ** (e + 1):
        e += 1
    while abs(exact) < Fraction(2) ** e:
        e -= 1
    return Fraction(2) ** (e - 10)


def rounded(exact: Fraction, *, is_twice: bool) -> float:
    if not exact:
        return 0.0
    finest = Fraction(1, 1 << 24)
    if is_twice:
        value = nearest(nearest(exact, last_place(exact)), finest)
    else:
        value = nearest(exact, max(last_place(exact), finest))
    if abs(value) >= 65536:
        return float("inf") if exact > 0 else float("-inf")
    return float(value)


def test_an_fp16_number_stays_what_it_is() -> None:
    for function in (away, away_twice):
        assert (function(FINITE) == FINITE).all()


def test_a_tie_goes_away_from_zero() -> None:
    want = np.where(MIDDLES > 0, FINITE[1:], FINITE[:-1])
    assert (away(MIDDLES) == want.astype(np.float16)).all()


def test_what_is_just_short_of_a_tie_does_not() -> None:
    towards_zero = np.where(MIDDLES > 0, FINITE[:-1], FINITE[1:])
    assert (away(np.nextafter(MIDDLES, 0)) == towards_zero.astype(np.float16)).all()


@pytest.mark.parametrize("function", [away, away_twice])
def test_65520_is_infinite_and_less_is_not(function) -> None:
    values = np.array([65519.99, 65520, -65520, np.inf, -np.inf])
    assert function(values).tolist() == [65504, np.inf, -np.inf, np.inf, -np.inf]
    assert np.isnan(function(np.array([np.nan]))).all()
    assert function(np.array([32760.0]), ceiling=2.0**15).tolist() == [np.inf]


@given(finite, finite)
def test_a_difference_is_rounded_once(x: np.float16, y: np.float16) -> None:
    exact = Fraction(float(x)) - Fraction(float(y))
    assert float(subtract(x, y)) == rounded(exact, is_twice=False)
    assert float(add(x, y)) == rounded(Fraction(float(x)) + Fraction(float(y)), is_twice=False)


@given(finite, finite)
def test_a_product_is_rounded_twice(x: np.float16, y: np.float16) -> None:
    exact = Fraction(float(x)) * Fraction(float(y))
    assert float(multiply(x, y)) == rounded(exact, is_twice=True)


def test_rounding_twice_shows_below_the_normal_numbers() -> None:
    x = np.array([(1 + 2.0**-10) * 2.0**-12], np.float16)
    y = np.array([(2 - 2.0**-9) * 2.0**-12], np.float16)
    exact = x.astype(np.float64) * y  # 2^-23 and a little less than half of 2^-24 … or a tie
    assert (multiply(x, y) == away_twice(exact)).all()
    short = np.array([2.0**-25 * (1 - 2.0**-13)])  # 11 bits make it 2^-25, a tie
    assert away(short).tolist() == [0.0]
    assert away_twice(short).tolist() == [2.0**-24]


@given(halves, halves)
def test_nan_is_never_produced(x: np.float16, y: np.float16) -> None:
    for function in (add, subtract, multiply):
        assert not np.isnan(function(x, y))


def test_nan_counts_as_infinity_and_what_is_indeterminate_is_zero() -> None:
    nan, inf, one, zero = np.float16([np.nan, np.inf, 1, 0])
    assert subtract(nan, one) == inf
    assert subtract(one, nan) == -inf
    assert multiply(nan, -one) == -inf
    for found in (subtract(inf, inf), subtract(nan, inf), multiply(zero, inf), add(inf, -inf)):
        assert found == 0
        assert not np.signbit(found)


def test_minus_zero_becomes_zero_in_a_sum() -> None:
    minus, zero = np.float16([-0.0, 0.0])
    assert not np.signbit(add(minus, zero))
    assert not np.signbit(add(minus, minus))
    assert not np.signbit(subtract(minus, zero))


def test_flushing_spares_the_normal_numbers() -> None:
    out = flushed(HALVES)
    low = np.abs(HALVES) < 2.0**-14
    assert (out[low] == 0).all()
    assert (out[~low].view(np.uint16) == HALVES[~low].view(np.uint16)).all()
