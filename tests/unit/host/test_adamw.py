from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import oracle
from threadpoolctl import threadpool_limits

from orion_ane.errors import ConfigError
from orion_ane.host import adamw
from orion_ane.host.adamw import AdamW, Moments, clip, global_norm

ONE_ROUNDING = 2.0**-23


def after_one(gradient, *, weight=1.0, lr=1e-3, decay=True, rule=None):
    w = np.array([weight], np.float32)
    moments = Moments.zero((1,))
    g = np.array([gradient], np.float32)
    (rule or AdamW()).update(w, g, moments, step=1, lr=lr, decay=decay)
    return float(w[0]), moments


def test_only_what_decays_decays_O01():
    assert after_one(0.0, decay=True)[0] == pytest.approx(0.9999, abs=1e-7)
    assert after_one(0.0, decay=False)[0] == 1.0


def test_moments_do_not_underflow_O11():
    """1e-4 squared is 0 in fp16; the first step is still as long as the rate."""
    moved, moments = after_one(1e-4, weight=0.0, decay=False)
    assert moved == pytest.approx(-1e-3, rel=1e-3)
    assert moments.mean.dtype == moments.square.dtype == np.float32
    assert moments.square[0] > 0


def test_steps_are_torchs(rng, monkeypatch):
    monkeypatch.setattr(adamw, "CHUNK", 7)  # so that a tensor takes several
    torch = oracle("torch")
    start = rng.normal(size=(5, 9)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(start))
    rule = AdamW(0.9, 0.95, 1e-8, 0.1)
    other = torch.optim.AdamW(
        [theirs], lr=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False
    )
    mine, moments = start.copy(), Moments.zero(start.shape)
    for step in range(1, 21):
        lr = 1e-2 / step
        gradient = (rng.normal(size=start.shape) * 10.0 ** rng.integers(-6, 3)).astype(np.float32)
        other.param_groups[0]["lr"] = lr
        theirs.grad = torch.tensor(gradient)
        other.step()
        rule.update(mine, gradient, moments, step=step, lr=lr, decay=True)
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=0, atol=8 * ONE_ROUNDING)


def test_the_true_norm_comes_back_and_gradients_are_shortened_together():
    gradients = [np.array([3.0], np.float32), np.array([[4.0]], np.float32)]
    assert clip(gradients, 1.0) == 5.0
    assert global_norm(gradients) == pytest.approx(1.0, abs=1e-6)
    assert gradients[0][0] == pytest.approx(0.6, abs=1e-6)
    before = [g.copy() for g in gradients]
    assert clip(gradients, 2.0) == pytest.approx(1.0, abs=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(gradients, before, strict=True))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_clipping_spreads_nothing_that_is_not_finite_O07(bad):
    gradients = [np.array([bad, 1.0], np.float32), np.ones(2, np.float32)]
    assert not math.isfinite(clip(gradients, 1.0))
    assert gradients[1].tolist() == [1, 1]


def test_a_norm_beyond_fp32_is_a_number():
    assert global_norm([np.full(4, 3e38, np.float32)]) == pytest.approx(6e38, rel=1e-6)


@pytest.mark.parametrize(
    "bad", [{"beta1": 1.0}, {"beta2": -0.1}, {"eps": -1.0}, {"weight_decay": math.inf}]
)
def test_constants_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match=f"{next(iter(bad))}: out of range"):
        AdamW(**bad)


def test_the_threads_of_numpy_s_blas_do_not_show_in_the_norm(rng):
    gradients = [rng.standard_normal(100_003).astype(np.float32) for _ in range(9)]
    found = []
    for count in (1, 2, 3):
        with threadpool_limits(count, user_api="blas"):
            found.append([global_norm([gradient]) for gradient in gradients])
    assert found[0] == found[1] == found[2]
