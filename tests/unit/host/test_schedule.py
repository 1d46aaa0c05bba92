from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.errors import ConfigError
from orion_ane.host.schedule import Schedule

SHAPES = ["constant", "linear", "cosine"]


def test_the_first_step_teaches_and_the_warm_up_ends_at_the_full_rate_O05():
    rate = Schedule(1.0, 100, "cosine", warmup=4)
    assert [rate(s) for s in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert Schedule(1.0, 100, "constant", warmup=4)(50) == 1.0


@pytest.mark.parametrize("shape", SHAPES)
def test_no_warm_up_starts_at_the_full_rate_O03(shape):
    assert Schedule(3e-4, 10, shape)(0) == 3e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_a_warm_up_over_all_steps_divides_by_nothing_O03(shape):
    rate = Schedule(1.0, 10, shape, warmup=10)
    assert math.isfinite(rate(10))
    assert rate(9) == 1.0


def test_no_steps_are_refused_O03():
    with pytest.raises(ConfigError, match="nothing to train: got 0"):
        Schedule(1.0, 0)


@pytest.mark.parametrize(
    ("shape", "want"), [("linear", [1.0, 0.55, 0.1]), ("cosine", [1.0, 0.55, 0.1])]
)
def test_it_falls_to_its_floor_and_stays(shape, want):
    rate = Schedule(1.0, 10, shape, floor=0.1)
    assert [rate(s) for s in (0, 5, 10)] == pytest.approx(want)
    assert rate(1000) == pytest.approx(0.1)


def test_a_quarter_of_the_cosine():
    assert Schedule(2.0, 8, "cosine")(2) == pytest.approx(1 + math.sqrt(0.5))


@given(st.sampled_from(SHAPES), st.integers(1, 50), st.integers(0, 50), st.floats(0, 1), st.data())
def test_rates_are_finite_and_within_their_bounds(shape, steps, warmup, floor, data):
    rate = Schedule(1.0, steps, shape, warmup=min(warmup, steps), floor=floor)
    at = data.draw(st.integers(0, 2 * steps))
    assert 0 <= rate(at) <= 1
    assert at >= rate.warmup or rate(at) > 0


@pytest.mark.parametrize(
    "bad", [{"shape": "step"}, {"lr": -1.0}, {"lr": math.nan}, {"warmup": 11}, {"floor": 2.0}]
)
def test_settings_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError):
        Schedule(**{"lr": 1.0, "steps": 10, **bad})
