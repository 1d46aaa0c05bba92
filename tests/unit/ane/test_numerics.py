from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from orion_ane.ane.numerics import NUMERICS, Numerics, Rule, State
from orion_ane.ane.targets import TARGETS
from orion_ane.errors import ConfigError

EVERY = [(name, key, rule) for name, numerics in NUMERICS.items() for key, rule in numerics.rules()]
IDS = [f"{name}-{key}" for name, key, _ in EVERY]


def test_every_target_has_numerics() -> None:
    assert set(NUMERICS) == set(TARGETS)
    assert all(numerics.target == name for name, numerics in NUMERICS.items())


def test_every_field_but_the_name_is_a_rule() -> None:
    names = {field.name for field in fields(Numerics)} - {"target"}
    assert {key for key, _ in NUMERICS["m1"].rules()} == names


@pytest.mark.parametrize(("name", "key", "rule"), EVERY, ids=IDS)
def test_a_rule_has_a_source_and_a_switch_where_it_is_disputed(name, key, rule) -> None:
    assert rule.sources
    assert all(rule.sources)
    assert bool(rule.choices) == (rule.state is State.DISPUTED)
    assert not rule.choices or rule.value in rule.choices


@pytest.mark.parametrize(
    ("key", "targets"),
    [
        ("product_grid", {"m1", "m2", "m4", "m5"}),
        ("sum_rounding", {"m1", "m2", "m4", "m5"}),
        ("conv_3x3", {"m1", "m2", "m4", "m5"}),
        ("difference", {"m5"}),
        ("product", {"m5"}),
    ],
)
def test_exact_is_only_what_published_values_confirm(key: str, targets: set[str]) -> None:
    chips = {name for name in NUMERICS if name.startswith("m")}
    exact = {name for name in chips if getattr(NUMERICS[name], key).state is State.EXACT}
    assert exact == targets


def test_winograd_is_m5s_alone() -> None:
    forms = {name: numerics.conv_3x3.value for name, numerics in NUMERICS.items()}
    assert [name for name, form in forms.items() if form == "winograd"] == ["m5"]


def test_a_chip_keeps_an_interior_overflow_and_the_paper_does_not_say_so() -> None:
    overflow = {name: numerics.overflow.value for name, numerics in NUMERICS.items()}
    assert overflow.pop("paper") == "final"
    assert set(overflow.values()) == {"sticky"}


def test_the_slice_limit_is_m1s_and_m2s() -> None:
    limits = {name: numerics.slice_limit.value for name, numerics in NUMERICS.items()}
    assert {name for name, limit in limits.items() if limit == 4094.0} == {"m1", "m2", "strict"}
    assert {limit for name, limit in limits.items() if name in ("m3", "m4", "m5", "paper")} == {
        None
    }


def test_a_disputed_rule_can_be_switched_and_leaves_the_others() -> None:
    m1 = NUMERICS["m1"]
    switched = m1.switched(overflow="final", subnormals="flushed")
    assert (switched.overflow.value, switched.subnormals.value) == ("final", "flushed")
    assert m1.overflow.value == "sticky"
    assert switched.switched(overflow="sticky", subnormals="kept") == m1


@pytest.mark.parametrize(
    "answers",
    [
        {"overflow": "never"},
        {"overflows": "final"},
        {"target": "m5"},
        {"product_grid": 2.0**-17},
        {"conv_3x3": "winograd"},
    ],
)
def test_what_is_no_question_cannot_be_switched(answers: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        NUMERICS["m1"].switched(**answers)


def test_an_error_names_the_rule_and_its_answers() -> None:
    with pytest.raises(ConfigError, match=r"arithmetic.overflow: .* got no, want final or"):
        NUMERICS["m1"].switched(overflow="no")


def test_rules_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        NUMERICS["m1"].overflow.value = "final"  # type: ignore[misc]
    with pytest.raises(TypeError):
        NUMERICS["m9"] = NUMERICS["m1"]  # type: ignore[index]


def test_a_state_prints_as_one_word() -> None:
    assert [str(state) for state in State] == ["exact", "approximate", "disputed"]
    assert Rule(1, State.EXACT, ("x",)).choices == ()


def said_of(rule: Rule[object]) -> str:
    powers = {2.0**-16: "2^-16", 2.0**15: "2^15", 2.0**16: "2^16", 4094.0: "4094", 0.0: "0"}
    value = "none" if rule.value is None else powers.get(rule.value, rule.value)
    return f"{value}, {rule.state}"


def test_the_page_says_what_the_rules_say() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "numerics.md").read_text("utf-8")
    chips = ("m1", "m2", "m3", "m4", "m5")
    for key, _ in NUMERICS["m1"].rules():
        cells = (said_of(getattr(NUMERICS[chip], key)) for chip in chips)
        assert f"| `{key}` | {' | '.join(cells)} |" in page
