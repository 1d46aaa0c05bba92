from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.errors import BackendError, ConfigError
from orion_ane.host.sampling import Sampling, log_softmax, sample

NO_MASK = np.zeros(5, np.float32)


def draws(logits, how, count=200):
    rng = np.random.default_rng(1)
    return {sample(np.asarray(logits, np.float32), how, rng) for _ in range(count)}


def test_greedy_takes_the_largest():
    assert draws([1, 3, 2], Sampling()) == {1}


@pytest.mark.parametrize("top_p", [0.0, 0.01])
def test_the_first_token_always_stays_G05(top_p):
    peaked = np.array([0, -np.inf, -np.inf], np.float32)  # probabilities [1, 0, 0]
    assert draws(peaked, Sampling(1.0, top_p=top_p)) == {0}


@pytest.mark.parametrize("k", [0, 5, 50, 100_000])
def test_top_k_of_none_or_at_or_over_the_vocabulary_keeps_all_G07(k):
    assert draws(NO_MASK, Sampling(1.0, top_k=k)) == {0, 1, 2, 3, 4}


def test_top_k_keeps_the_k_likeliest():
    assert draws([0, 2, 1, 3, -1], Sampling(5.0, top_k=3), 500) == {1, 2, 3}


def test_top_p_keeps_the_fewest_that_reach_it():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    assert draws(np.log(probabilities), Sampling(1.0, top_p=0.7), 500) == {0, 1}
    assert draws(np.log(probabilities), Sampling(1.0, top_p=0.85), 500) == {0, 1, 2}


def test_draws_follow_the_probabilities():
    rng = np.random.default_rng(5)
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    counts = np.bincount([sample(logits, Sampling(1.0), rng) for _ in range(6000)], minlength=3)
    assert counts / 6000 == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_a_seed_gives_the_same_draws_and_each_request_its_own_G17():
    logits = np.linspace(0, 1, 50, dtype=np.float32)
    how = Sampling(0.7)

    def run(seed):
        rng = np.random.default_rng(seed)
        return [sample(logits, how, rng) for _ in range(20)]

    alone = run(42), run(43)
    a, b = np.random.default_rng(42), np.random.default_rng(43)
    mixed = [(sample(logits, how, a), sample(logits, how, b)) for _ in range(20)]
    assert [x for x, _ in mixed] == alone[0] == run(42)
    assert [y for _, y in mixed] == alone[1] != alone[0]


@pytest.mark.parametrize("bad", [[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]])
def test_logits_that_went_wrong_are_refused(bad):
    with pytest.raises(BackendError, match="not finite"):
        sample(np.array(bad, np.float32), Sampling(), np.random.default_rng(0))


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 1.5},
        {"top_p": -0.1},
    ],
)
def test_settings_that_mean_nothing_are_refused(setting):
    with pytest.raises(ConfigError, match="out of range"):
        Sampling(**setting)


@given(st.floats(1e-4, 1e-2), st.integers(0, 4))
def test_a_temperature_near_zero_is_greedy(temperature, top):
    logits = np.zeros(5, np.float32)
    logits[top] = 10
    assert draws(logits, Sampling(temperature), 5) == {top}


@pytest.mark.parametrize(("vocab", "loss"), [(50257, 10.824905), (32000, 10.373491)])
def test_equal_logits_cost_log_v_N13(vocab, loss):
    assert -log_softmax(np.full((1, vocab), 10, np.float16))[0, 7] == pytest.approx(loss, abs=1e-6)


def test_log_sum_exp_is_shifted_N13():
    logits = np.full(32, 10.0)
    assert float((logits - log_softmax(logits))[0]) == pytest.approx(13.465736, abs=1e-6)


@pytest.mark.parametrize("bad", [[np.nan, 1], [np.inf, 1], [-np.inf, -np.inf]])
def test_log_probabilities_of_logits_that_went_wrong_are_nan_without_a_warning(bad):
    found = log_softmax(np.array([[1, 2], bad], np.float32))
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()
