from __future__ import annotations

import numpy as np
import pytest

from orion_ane.models.weights import to_fp16
from orion_ane.models.weights.tensors import widen_bf16


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (65519.9, 65504),
        (65520, np.inf),
        (-65520, -np.inf),
        (5.96e-8, 2.0**-24),
        (1e-8, 0),
        (2.0**-25, 0),
        (np.nextafter(np.float32(2.0**-25), np.float32(1)), 2.0**-24),
        (2049, 2048),  # ties go to even
        (2051, 2052),
    ],
)
def test_fp16_rounds_to_nearest_even_at_its_edges_N17(value, want):
    rounded, _ = to_fp16({"w": np.array([value], np.float32)})
    assert rounded["w"].dtype == np.float16
    assert float(rounded["w"][0]) == want


def test_what_is_lost_is_counted_and_named_N17():
    tensors = {
        "fine": np.array([1, -2, 0, 6e-5], np.float32),
        "loud": np.array([[65520, -1e5, 1], [np.inf, np.nan, 65519.9]], np.float32),
        "soft": np.array([1e-8, -1e-8, 0, 5.96e-8], np.float32),
        "halves": np.array([np.inf, 1], np.float16),
    }
    rounded, report = to_fp16(tensors)
    assert report.is_damaged
    assert [(x.name, x.overflowed, x.underflowed, x.non_finite) for x in report.losses] == [
        ("loud", 2, 0, 2),
        ("soft", 0, 2, 0),
        ("halves", 0, 0, 1),
    ]
    assert report.losses[0].largest == 1e5
    assert rounded["halves"] is tensors["halves"]
    assert report.lines() == (
        "fp16: loud: 2 overflow, 2 are not finite (largest 100000)",
        "fp16: halves: 1 are not finite (largest 1)",
        "fp16: soft: 2 underflow to 0 (largest 5.96e-08)",
    )


def test_what_fits_is_not_reported():
    _, report = to_fp16({"w": np.array([65504, -65504, 2.0**-24, 0, -0.0], np.float32)})
    assert report.losses == report.lines() == ()
    assert not report.is_damaged


def test_many_losses_are_told_in_a_dozen_lines():
    _, report = to_fp16({f"w{i}": np.array([1e6], np.float32) for i in range(40)})
    assert len(report.lines()) == 13
    assert report.lines()[-1] == "fp16: and 28 more tensors lost something"


def test_counts_reach_over_chunks(monkeypatch, rng):
    monkeypatch.setattr("orion_ane.models.weights.precision.CHUNK", 7)
    wide = rng.choice(np.array([1, 1e6, 1e-9, np.nan], np.float32), 100)
    _, report = to_fp16({"w": wide.reshape(10, 10).T})
    (loss,) = report.losses
    assert loss.overflowed == np.count_nonzero(wide == 1e6)
    assert loss.underflowed == np.count_nonzero(wide == np.float32(1e-9))
    assert loss.non_finite == np.count_nonzero(np.isnan(wide))


def test_bf16_widens_exactly_W07():
    words = np.array([0x3F80, 0xC049, 0x7F7F, 0x0001, 0xFF80], np.uint16)
    wide = widen_bf16(words)
    assert wide.dtype == np.float32
    assert wide[:2].tolist() == [1.0, -3.140625]
    assert wide[2] == np.float32(3.3895314e38)
    assert wide[3] == np.float32(9.1835e-41)
    assert np.isneginf(wide[4])
    _, report = to_fp16({"w": wide[:3]})
    assert report.losses[0].overflowed == 1
