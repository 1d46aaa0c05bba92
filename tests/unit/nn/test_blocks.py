from __future__ import annotations

import numpy as np
import pytest

from orion_ane.ir import Graph
from orion_ane.nn.blocks import Cache, attention, gelu, layer_norm, rms_norm, rotate, silu
from orion_ane.ops import evaluate, input_
from orion_ane.types import DType, TensorType

FP32_ROUNDING = 2e-6
FP16_ROUNDING = 2e-3


def run(build, **arrays):
    nodes = {name: input_(name, TensorType.of(array)) for name, array in arrays.items()}
    return evaluate(Graph(nodes, {"y": build(**nodes)}), arrays)["y"]


def lane(values, dtype=np.float32):
    return np.asarray(values, dtype).reshape(1, -1, 1, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rms_norm_does_not_overflow_N07(dtype):
    x, gain = lane([10] * 768, dtype), lane([1] * 768, dtype)
    y = run(lambda x, gain: rms_norm(x, gain, 1e-5), x=x, gain=gain)
    assert y == pytest.approx(np.ones_like(y), abs=1e-3)


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0, 1e4])
def test_rms_norm_in_fp16_agrees_with_fp64(size, rng):
    x = (rng.normal(size=768) * size).astype(np.float16)
    gain = rng.normal(size=768).astype(np.float16)
    y = run(
        lambda x, gain: rms_norm(x, gain, 1e-5), x=lane(x, np.float16), gain=lane(gain, np.float16)
    )
    wide = x.astype(np.float64)
    want = wide / np.sqrt((wide**2).mean() + 1e-5) * gain
    assert y.ravel() == pytest.approx(want, rel=4e-3, abs=FP16_ROUNDING)


@pytest.mark.parametrize(("dtype", "near"), [(np.float32, FP32_ROUNDING), (np.float16, 5e-3)])
def test_rms_norm_keeps_epsilon_when_it_scales_N09(dtype, near):
    x = lane([100] + [0] * 63, dtype)
    y = run(lambda x, gain: rms_norm(x, gain, 1e-5), x=x, gain=lane([1] * 64, dtype))
    assert y.ravel()[0] == pytest.approx(7.9999997, abs=near)


def test_layer_norm_agrees_with_fp64(rng):
    x, gain, bias = (rng.normal(size=48).astype(np.float32) for _ in range(3))
    y = run(
        lambda x, gain, bias: layer_norm(x, gain, bias, 1e-5),
        x=lane(x),
        gain=lane(gain),
        bias=lane(bias),
    )
    wide = x.astype(np.float64)
    want = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5) * gain + bias
    assert y.ravel() == pytest.approx(want, abs=FP32_ROUNDING)


def test_gelu_is_the_tanh_form_N11():
    y = run(gelu, x=lane([1, 2, -0.5])).ravel()
    assert y == pytest.approx([0.8411920, 1.9545977, -0.1542860], abs=1e-6)


def test_gelu_in_fp16_survives_the_square_that_overflows():
    y = run(gelu, x=lane([300, -300, 6e4], np.float16)).ravel()
    assert y.tolist() == [300, 0, 6e4]


def test_silu():
    assert run(silu, x=lane([1, -2])).ravel() == pytest.approx([0.7310586, -0.2384058], abs=1e-6)


def test_rotation_gives_the_score_that_both_conventions_give_R03():
    inverse = 10000.0 ** (-np.arange(0, 4, 2) / 4)

    def at(vector, position):
        angle = np.concatenate([inverse, inverse]) * position
        tables = {"cos": np.cos(angle), "sin": np.sin(angle)}
        shaped = {k: v.astype(np.float32).reshape(1, 1, 4, 1) for k, v in tables.items()}
        half_split = np.array(vector, np.float32)[[0, 2, 1, 3]].reshape(1, 1, 4, 1)
        return run(rotate, x=half_split, **shaped).ravel()

    interleaved_score = at([1, 2, 3, 4], 3) @ at([0.5, -1, 2, 1], 1)
    assert interleaved_score == pytest.approx(8.7036321, abs=1e-5)


def plain_attention(q, k, v, mask):
    """One query head a key head group, in float64: q [H,D,S], k and v [K,D,T], mask [S,T]."""
    groups = q.shape[0] // k.shape[0]
    out = np.empty_like(q, dtype=np.float64)
    for h in range(q.shape[0]):
        key, value = (a[h // groups].astype(np.float64) for a in (k, v))
        scores = q[h].T.astype(np.float64) @ key / np.sqrt(q.shape[1]) + mask
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[h] = value @ (weights / weights.sum(1, keepdims=True)).T
    return out


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("cached", [0, 7])
def test_attention_agrees_with_the_textbook(groups, cached, rng):
    kv_heads, d, s = 2, 8, 5
    q = rng.normal(size=(kv_heads, groups, d, s)).astype(np.float32)
    k, v = (rng.normal(size=(1, kv_heads, d, cached + s)).astype(np.float32) for _ in "kv")
    mask = np.triu(np.full((s, cached + s), -1e9), cached + 1).astype(np.float32)
    feeds = {
        "q": np.ascontiguousarray(q.transpose(1, 0, 2, 3)),  # [G,K,D,S]
        "k": k[..., cached:],
        "v": v[..., cached:],
        "mask": mask[None, None, :, cached:],
    }
    if cached:
        feeds |= {"kc": k[..., :cached], "vc": v[..., :cached], "mc": mask[None, None, :, :cached]}

    def build(q, k, v, mask, kc=None, vc=None, mc=None):
        cache = None if kc is None else Cache(kc, vc, mc)
        return attention(q, k, v, mask=mask, cache=cache)

    y = run(build, **feeds).transpose(1, 0, 2, 3).reshape(-1, d, s)
    want = plain_attention(q.reshape(-1, d, s), k[0], v[0], mask)
    assert y == pytest.approx(want, abs=FP32_ROUNDING)


def test_attention_over_an_empty_cache_is_attention_without_one(rng):
    q, k, v = (rng.normal(size=(1, 2, 8, 4)).astype(np.float16) for _ in range(3))
    mask = np.triu(np.full((4, 4), -1e4), 1).astype(np.float16)[None, None]
    hidden = {
        "kc": np.full((1, 2, 8, 6), 3, np.float16),
        "vc": np.full((1, 2, 8, 6), 7, np.float16),
        "mc": np.full((1, 1, 4, 6), -1e4, np.float16),
    }
    alone = run(
        lambda q, k, v, mask: attention(q, k, v, mask=mask, cache=None), q=q, k=k, v=v, mask=mask
    )
    beside = run(
        lambda q, k, v, mask, kc, vc, mc: attention(q, k, v, mask=mask, cache=Cache(kc, vc, mc)),
        q=q,
        k=k,
        v=v,
        mask=mask,
        **hidden,
    )
    assert alone.dtype == DType.FP16.numpy
    assert beside == pytest.approx(alone, abs=FP16_ROUNDING)
