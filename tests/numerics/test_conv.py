"""Convolutions against their definition, an output at a time, in integers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mac_rule import CEILING, away, exponent, slow_sum, units

from orion_ane.ane.rounding import away as half
from orion_ane.engine.macs.conv import conv, conv_weight
from orion_ane.engine.threads import Threads
from orion_ane.errors import ShapeError
from orion_ane.types import Array

SAME = (1, 1, 1, 1)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (rng.standard_normal(shape) * scale).astype(np.float16)


def same(y: Array, z: Array) -> bool:
    return y.shape == z.shape and bool((y.view(np.uint16) == z.view(np.uint16)).all())


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    pad=st.tuples(*[st.integers(0, 2)] * 4),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    overflow=st.sampled_from(["final", "sticky"]),
)
@settings(max_examples=30)
def test_a_direct_convolution_is_one_sum_over_taps_and_channels(
    seed, size, pad, strides, dilations, overflow
) -> None:
    rng = np.random.default_rng(seed)
    x, w = normal(rng, 2, 3, 8, 9, scale=90), normal(rng, 4, 3, *size, scale=60)
    y = conv(x, conv_weight(w), overflow=overflow, pad=pad, strides=strides, dilations=dilations)
    padded = np.pad(x, ((0, 0), (0, 0), pad[:2], pad[2:]))
    for n, o, i, j in product(range(2), range(4), range(y.shape[2]), range(y.shape[3])):
        top, left = i * strides[0], j * strides[1]
        seen = padded[
            n,
            :,
            top : top + (size[0] - 1) * dilations[0] + 1 : dilations[0],
            left : left + (size[1] - 1) * dilations[1] + 1 : dilations[1],
        ]
        if (i + j) % 3 == 0:  # a third of them, for time
            assert y[n, o, i, j] == slow_sum(w[o].ravel(), seen.ravel(), overflow)


def winograd_pair(x: Array, w: Array, i: int, t: int) -> list[float]:
    """Outputs 2t and 2t+1 of row i, of x [C,H,W] and w [C,3,3], as the rule is stated."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 3))).astype(np.float64)
    m = [0, 0, 0, 0]
    for c, row in product(range(x.shape[0]), range(3)):
        d = padded[c, i + row, 2 * t : 2 * t + 4]
        g = w[c, row].astype(np.float64)
        v = half(np.array([d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]))
        u = half(np.array([g[0], (g[0] + g[1] + g[2]) / 2, (g[0] - g[1] + g[2]) / 2, g[2]]))
        for j in range(4):
            m[j] += units(float(u[j]), float(v[j]))
    return [away(m[0] + m[1] + m[2]), away(m[1] - m[2] - m[3])]


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 7, 8]), st.sampled_from([1e-3, 1.0, 30.0]))
@settings(max_examples=15)
def test_winograds_form_is_what_is_stated_of_m5(seed: int, wide: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x, w = normal(rng, 1, 3, 5, wide, scale=scale), normal(rng, 2, 3, 3, 3)
    y = conv(x, conv_weight(w, "winograd"), overflow="final", pad=SAME)
    assert y.shape == (1, 2, 5, wide)
    for o, i, t in product(range(2), range(5), range((wide + 1) // 2)):
        pair = np.array(winograd_pair(x[0], w[o], i, t)[: wide - 2 * t], np.float16)
        assert same(np.ascontiguousarray(y[0, o, i, 2 * t : 2 * t + 2]), pair)


def test_the_two_forms_differ_by_rounding_alone(rng: np.random.Generator) -> None:
    x, w = normal(rng, 1, 16, 12, 12), normal(rng, 8, 16, 3, 3, scale=0.1)
    direct, winograd = (
        conv(x, conv_weight(w, form), overflow="final", pad=SAME) for form in ("direct", "winograd")
    )
    difference = np.abs(direct.astype(np.float32) - winograd)
    assert 0 < difference.max() < 0.01


@pytest.mark.parametrize("form", ["direct", "winograd"])
def test_an_image_sees_neither_its_neighbours_nor_the_threads(form, rng) -> None:
    x, w = normal(rng, 3, 5, 9, 10), conv_weight(normal(rng, 7, 5, 3, 3), form)
    y = conv(x, w, overflow="sticky", pad=SAME, threads=Threads(2))
    for n in range(3):
        assert same(y[n : n + 1], conv(x[n : n + 1], w, overflow="sticky", pad=SAME))


@pytest.mark.parametrize("form", ["direct", "winograd"])
def test_bands_do_not_show(form, rng, monkeypatch) -> None:
    x, w = normal(rng, 1, 4, 11, 8), conv_weight(normal(rng, 3, 4, 3, 3), form)
    whole = conv(x, w, overflow="final", pad=SAME)
    monkeypatch.setattr("orion_ane.engine.macs.conv.COLUMNS", 17)
    assert same(whole, conv(x, w, overflow="final", pad=SAME))


def test_a_sum_of_winograds_that_passes_the_ceiling_stays_infinite_where_sums_are_sticky() -> None:
    x = np.full((1, 4, 3, 4), 200, np.float16)
    w = np.full((1, 4, 3, 3), 30, np.float16)
    w[:, 2:] = -30  # the channels cancel in the end
    final, sticky = (
        conv(x, conv_weight(w, "winograd"), overflow=overflow, pad=SAME)
        for overflow in ("final", "sticky")
    )
    assert (final == 0).all()
    assert np.isinf(sticky).any()
    assert not np.isnan(sticky).any()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: conv(x.astype(np.float32), conv_weight(w), overflow="final"),
        lambda x, w: conv(x[0], conv_weight(w), overflow="final"),
        lambda x, w: conv(x[:, :1], conv_weight(w), overflow="final"),
        lambda x, w: conv(x[:, :, :2, :2], conv_weight(w), overflow="final"),
        lambda x, w: conv(x, conv_weight(w, "winograd"), overflow="final", strides=(2, 1)),
        lambda x, w: conv(x, conv_weight(w, "winograd"), overflow="final", dilations=(1, 2)),
        lambda x, w: conv_weight(w[:, :, :2], "winograd"),
        lambda x, w: conv_weight(w.astype(np.float32)),
        lambda x, w: conv_weight(w[0]),
    ],
)
def test_what_does_not_fit_is_refused(call) -> None:
    with pytest.raises(ShapeError):
        call(np.zeros((1, 2, 5, 5), np.float16), np.zeros((3, 2, 3, 3), np.float16))


def test_the_rule_of_the_tests_knows_its_own_edges() -> None:
    assert exponent(2.0**-20) == -14
    assert units(2.0**-8, 2.0**-8) == 1
    assert units(2.0**-8, 2.0**-9) == 0  # would round to 1
    assert units(2.0**-24, 2.0**7) == 1  # a tie
    assert away(CEILING - (8 << 16)) == float("inf")
    assert away(CEILING - (8 << 16) - 1) == 32752
