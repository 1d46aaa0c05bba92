from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

from orion_ane.errors import ConfigError
from orion_ane.host.rope import Rope, frequencies, tables

FP32_ROUNDING = 1e-6


def by_halves(x, position, rope):
    cos, sin = tables(np.array([position]), rope, head_dim=len(x), context=64)
    half = len(x) // 2
    turned = np.concatenate([-x[half:], x[:half]])
    return x * cos[:, 0] + turned * sin[:, 0]


def by_neighbours(x, position, rope):
    cos, sin = tables(np.array([position]), rope, head_dim=len(x), context=64)
    half = len(x) // 2
    even, odd = x[0::2], x[1::2]
    out = np.empty_like(x)
    out[0::2] = even * cos[:half, 0] - odd * sin[:half, 0]
    out[1::2] = odd * cos[:half, 0] + even * sin[:half, 0]
    return out


def test_scores_agree_in_both_conventions_each_with_its_own_rows():  # R03
    q, k = np.array([1.0, 2, 3, 4]), np.array([0.5, -1, 2, 1])
    order = [0, 2, 1, 3]  # neighbours (0,1), (2,3) as halves (0,2), (1,3)
    rope = Rope()
    neighbours = by_neighbours(q, 3, rope) @ by_neighbours(k, 1, rope)
    halves = by_halves(q[order], 3, rope) @ by_halves(k[order], 1, rope)
    mixed = by_halves(q, 3, rope) @ by_halves(k, 1, rope)
    assert neighbours == pytest.approx(8.7036321, abs=FP32_ROUNDING)
    assert halves == pytest.approx(8.7036321, abs=FP32_ROUNDING)
    assert mixed == pytest.approx(-0.1307137, abs=FP32_ROUNDING)


def test_scores_depend_on_the_distance_alone(rng):
    q, k = rng.standard_normal((2, 16))
    near = by_halves(q, 5, Rope()) @ by_halves(k, 2, Rope())
    far = by_halves(q, 55, Rope()) @ by_halves(k, 52, Rope())
    assert near == pytest.approx(far, abs=1e-5)


def test_tables_have_a_row_a_channel_and_equal_halves():
    cos, sin = tables(np.arange(5), Rope(theta=100.0), head_dim=8, context=16)
    assert cos.shape == sin.shape == (8, 5)
    assert cos.dtype == sin.dtype == np.float32
    assert np.array_equal(cos[:4], cos[4:])
    assert np.array_equal(sin[:4], sin[4:])
    assert np.all(cos[:, 0] == 1)
    assert sin[1, 3] == np.float32(np.sin(3 * 100.0 ** (-2 / 8)))


def test_linear_scaling_by_two_is_half_the_position():
    linear = Rope(kind="linear", parameters=(("factor", 2.0),))
    slowed = tables(np.array([10]), linear, head_dim=8, context=64)
    plain = tables(np.array([5]), Rope(), head_dim=8, context=64)
    assert np.allclose(slowed, plain, atol=FP32_ROUNDING)


def test_factors_divide_each_frequency():
    rope = Rope(kind="factors", parameters=(("0", 1.0), ("1", 8.0)))
    series, _ = frequencies(rope, 4, 64)
    assert np.allclose(series, [1, 0.01 / 8])
    with pytest.raises(ConfigError, match="got 2, want 4"):
        frequencies(rope, 8, 64)


def test_frequencies_are_computed_once_and_cannot_be_changed():
    series, _ = frequencies(Rope(), 8, 64)
    assert frequencies(Rope(), 8, 64)[0] is series
    with pytest.raises(ValueError, match="read-only"):
        series[0] = 2


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("linear", {}, "parameters are missing: want factor"),
        ("default", {"factor": 2.0}, "unknown parameters: got factor"),
        ("yarn", {"factor": 2.0, "short_factor": 1.0}, "unknown parameters: got short_factor"),
        ("linear", {"factor": 0.0}, "no such factor: got 0.0"),
        ("linear", {"factor": float("nan")}, "no such factor: got nan"),
        ("llama3", {"factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}, "the bands are"),
    ],
)
def test_a_scaling_that_means_nothing_is_refused(kind, parameters, message):
    with pytest.raises(ConfigError, match=message):
        Rope(kind=kind, parameters=tuple(parameters.items()))


def test_a_base_or_a_head_that_means_nothing_is_refused():
    with pytest.raises(ConfigError, match="no such base: got 0"):
        Rope(theta=0)
    with pytest.raises(ConfigError, match="want even"):
        frequencies(Rope(), 7, 64)


SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "yarn untruncated": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "truncate": False,
        "beta_fast": 16,
        "beta_slow": 2,
    },
    "yarn mscale": {
        "factor": 40.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.707,
        "mscale_all_dim": 1.2,
    },
    "yarn attention": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "attention_factor": 1.5,
    },
    "yarn tiny original": {"factor": 4.0, "original_max_position_embeddings": 4},
}


@pytest.mark.parametrize("case", SCALINGS)
@pytest.mark.parametrize(("theta", "head_dim"), [(10000.0, 64), (500000.0, 128), (10000.0, 8)])
def test_frequencies_agree_with_transformers(case, theta, head_dim):
    transformers = oracle("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    kind, parameters = case.split()[0], SCALINGS[case]
    config = transformers.LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        max_position_embeddings=256,
        rope_parameters={"rope_type": kind, "rope_theta": theta, **parameters},
    )
    if kind == "default":
        want, want_factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        want, want_factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    rope = Rope(theta=theta, kind=kind, parameters=tuple(parameters.items()))
    got, got_factor = frequencies(rope, head_dim, 256)
    assert np.allclose(got, want.numpy(), rtol=FP32_ROUNDING, atol=0)
    assert got_factor == pytest.approx(want_factor, rel=FP32_ROUNDING)


def test_the_original_context_of_yarn_is_the_context_where_it_is_not_said():
    implied = Rope(kind="yarn", parameters=(("factor", 4.0),))
    said = Rope(kind="yarn", parameters=(("factor", 4.0), ("original_max_position_embeddings", 64)))
    assert np.array_equal(frequencies(implied, 16, 64)[0], frequencies(said, 16, 64)[0])
