from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import oracle

from orion_ane.engine import Threads
from orion_ane.errors import DataError
from orion_ane.host.loss import IGNORED, cross_entropy

FP32_ROUNDING = 1e-6


def by_torch(logits, targets):
    torch = oracle("torch")
    wide = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(
        wide, torch.tensor(targets), ignore_index=IGNORED, reduction="sum"
    )
    loss.backward()
    return float(loss.detach()), wide.grad.numpy()


@pytest.mark.parametrize("axis", [0, 1])
def test_the_loss_and_its_gradient_are_torchs(axis, rng):
    logits = (rng.normal(size=(7, 11)) * 5).astype(np.float32)
    targets = rng.integers(0, 11, 7)
    targets[[0, 4]] = IGNORED
    want, gradient = by_torch(logits, targets)
    found = cross_entropy(logits.T if axis == 0 else logits, targets, axis=axis)
    assert found.total == pytest.approx(want, rel=FP32_ROUNDING)
    assert found.tokens == 5
    assert found.gradient.dtype == np.float32
    got = found.gradient.T if axis == 0 else found.gradient
    np.testing.assert_allclose(got, gradient, atol=FP32_ROUNDING)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_large_vocabulary_is_added_up_in_parts_by_any_number_of_threads(axis, rng, monkeypatch):
    monkeypatch.setattr("orion_ane.host.loss.PART", 4)
    logits = (rng.normal(size=(7, 11)) * 5).astype(np.float32)
    logits[2] += 1e4  # each lane has its own top
    targets = rng.integers(0, 11, 7)
    targets[3] = IGNORED
    logits[3, 5] = np.nan  # nobody asks
    want, gradient = by_torch(np.delete(logits, 3, 0), np.delete(targets, 3))
    given = np.ascontiguousarray(logits.T if axis == 0 else logits)
    kept = given.copy()
    found = cross_entropy(given, targets, axis=axis)
    assert np.array_equal(given, kept, equal_nan=True)
    assert found.total == pytest.approx(want, rel=FP32_ROUNDING)
    got = found.gradient.T if axis == 0 else found.gradient
    np.testing.assert_allclose(np.delete(got, 3, 0), gradient, atol=FP32_ROUNDING)
    assert not got[3].any()
    again = cross_entropy(given, targets, axis=axis, out=given, each=Threads(2).each)
    assert again.gradient is given  # the logits are gone, and nothing else
    assert (again.total, again.tokens) == (found.total, found.tokens)
    assert np.array_equal(again.gradient, found.gradient)


@pytest.mark.parametrize(("vocab", "nats"), [(50257, 10.824905), (32000, 10.373491)])
def test_equal_logits_are_a_guess_among_all_N13(vocab, nats):
    found = cross_entropy(np.zeros((1, vocab), np.float32), np.array([3]))
    assert found.total == pytest.approx(nats, abs=1e-6)


def test_large_scores_do_not_overflow_N13():
    for size in (1e4, 60000.0):
        found = cross_entropy(np.full((1, 32), size, np.float16), np.array([0]))
        assert found.total == pytest.approx(math.log(32), abs=1e-6)
    far = cross_entropy(np.array([[0.0, 1e30]], np.float32), np.array([0]))
    assert far.total == pytest.approx(1e30, rel=FP32_ROUNDING)
    assert np.isfinite(far.gradient).all()


def test_nothing_to_learn_is_no_loss_and_no_gradient_D05():
    found = cross_entropy(np.ones((3, 10), np.float32), np.full(3, IGNORED))
    assert (found.total, found.tokens, found.mean) == (0, 0, 0)
    assert not found.gradient.any()
    mixed = cross_entropy(np.ones((2, 10), np.float32), np.array([IGNORED, 7]))
    assert mixed.mean == pytest.approx(2.302585, abs=1e-6)
    assert not mixed.gradient[0].any()


@pytest.mark.parametrize("bad", [-1, 10, 1 << 20])
def test_a_target_outside_the_vocabulary_is_named(bad):
    with pytest.raises(DataError, match=f"no such id: got {bad}, want 0 to 9"):
        cross_entropy(np.ones((2, 10), np.float32), np.array([3, bad]))


def test_what_is_not_a_number_stays_visible_N19():
    logits = np.ones((1, 4), np.float32)
    logits[0, 1] = np.nan
    found = cross_entropy(logits, np.array([0]))
    assert math.isnan(found.total)
    assert np.isnan(found.gradient).all()
