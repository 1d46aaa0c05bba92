from __future__ import annotations

from math import erf

import numpy as np
import pytest

from orion_ane.ane.activation import KNOTS, TABLES, activation_table
from orion_ane.errors import ConfigError

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = np.unique(HALVES[np.isfinite(HALVES)])

EXACT = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-np.clip(x, -700, 700))),
    "tanh": np.tanh,
    "gelu": lambda x: x * (1 + np.array([erf(v / 2**0.5) for v in x])) / 2,
    "silu": lambda x: x / (1 + np.exp(-np.clip(x, -700, 700))),
}
REPORTED = {"sigmoid": 0.0034, "tanh": 0.0017, "gelu": 0.0059, "silu": None}
OURS = 0.0082
"""Of silu, of which nothing is reported but the value at 0."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_errs_no_more_than_is_reported_of_the_device(name: str) -> None:
    table = activation_table(name)
    wide = FINITE.astype(np.float64)
    assert table.error == REPORTED[name]
    assert np.abs(table(FINITE) - EXACT[name](wide)).max() <= (table.error or OURS)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_33_fp16_knots_and_straight_lines_between(name: str) -> None:
    table = activation_table(name)
    knots = np.array(table.knots)
    assert len(knots) == KNOTS == 33
    assert (knots.astype(np.float16) == knots).all()
    places = np.linspace(table.low, table.high, KNOTS)
    middles = (places[1:] + places[:-1]) / 2
    want = (knots[1:] + knots[:-1]) / 2
    np.testing.assert_allclose(table(places).astype(np.float64), knots, rtol=2.0**-11)
    np.testing.assert_allclose(table(middles).astype(np.float64), want, rtol=2.0**-10, atol=2e-7)


def test_the_sigmoids_domain_is_the_reported_one() -> None:
    table = activation_table("sigmoid")
    assert (table.low, table.high) == (-9.938, 8.320)
    ends = table(np.float16([-60000, -9.95, 8.33, 60000]))
    assert ends.tolist() == [table.knots[0]] * 2 + [table.knots[-1]] * 2


def test_tanh_is_odd() -> None:
    table = activation_table("tanh")
    positive = FINITE[FINITE >= 0]
    assert (table(-positive) == -table(positive)).all()
    assert table(np.float16(0)) == 0


def test_infinity_and_what_counts_as_it_give_one() -> None:
    for name in ("sigmoid", "tanh"):
        assert (activation_table(name)(np.float16([np.inf, np.nan])) == 1).all()
    assert activation_table("tanh")(np.float16([-np.inf])) == -1


@pytest.mark.parametrize(("name", "want"), [("gelu", -0.000543), ("silu", -0.001259)])
def test_what_is_reported_at_zero(name: str, want: float) -> None:
    assert float(activation_table(name)(np.float16(0))) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_a_gate_goes_on_as_a_line(name: str) -> None:
    assert activation_table(name)(np.float16([9, 1000, -9, -1000])).tolist() == [9, 1000, 0, 0]


@pytest.mark.parametrize("name", TABLES)
def test_nan_counts_as_infinity(name: str) -> None:
    table = activation_table(name)
    assert table(np.float16([np.nan])) == table(np.float16([np.inf]))


@pytest.mark.parametrize("name", TABLES)
def test_a_lookup_is_the_table_at_every_number(name: str) -> None:
    table = activation_table(name)
    assert (table.by_bits == table(HALVES)).all()
    assert table.by_bits is table.by_bits


def test_another_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such table: got exp, want"):
        activation_table("exp")
