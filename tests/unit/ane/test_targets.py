"""Laws of targets, and of the files that a probe writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orion_ane.ane.check import check
from orion_ane.ane.limits import LIMIT_BY_CODE, LIMITS, State
from orion_ane.ane.targets import TARGETS, Behaviour, target
from orion_ane.errors import ConfigError
from orion_ane.mil import IOS16, IOS18

LEFT_OUT = "ANE105 ANE109 ANE110 ANE111 ANE117 ANE118 ANE120 ANE123 ANE103"  # K1 … K18, OF17
OLD_TEXT = {row.code for row in LIMITS if row.is_old_text}


def written(folder: Path, document: object, name: str = "mac.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_paper_is_the_twenty_with_reloads() -> None:
    paper = target("paper")
    assert paper.limits == {f"ANE{n:03}" for n in range(1, 21)}
    assert paper.behaviour.reload == "new"
    assert paper.behaviour.programs_are == "compiles"


def test_strict_leaves_out_what_running_programs_contradict() -> None:
    strict = target("strict")
    assert not strict.limits & {*LEFT_OUT.split(), *OLD_TEXT}
    assert {"ANE003", "ANE019", "ANE101", "ANE104", "ANE107", "ANE132"} <= strict.limits
    assert all(LIMIT_BY_CODE[code].state is not State.OPEN for code in strict.limits)
    assert strict.behaviour == Behaviour("names", "old", "new", 119, "loaded", "fails", 15.0)
    assert (strict.numerics, strict.dialect) == ("m1", IOS18)


@pytest.mark.parametrize("chip", ["m1", "m2", "m3", "m4", "m5"])
def test_a_chip_holds_what_is_claimed_for_it(chip: str) -> None:
    found = target(chip)
    assert found.numerics == chip
    assert all(chip in row.chips for row in found.rows)
    assert ("ANE107" in found.limits) == (chip in ("m1", "m2", "m3"))
    assert ("ANE104" in found.limits) == (chip == "m1")
    assert ("ANE211" in found.limits) == (chip == "m1")
    assert "ANE154" not in found.limits, "e5rt's alone"


def test_two_target_files_judge_one_program(tmp_path: Path) -> None:
    """Case A11."""
    rows_and_no_reduce = {"base": None, "limits": {"ANE132": True, "ANE211": True}}
    narrow = target(written(tmp_path, rows_and_no_reduce, "narrow.json"))
    free = target(written(tmp_path, {"base": None}, "free.json"))
    text = """program(1.0) { func main<ios16>(tensor<fp16, [1,64,1,33]> a) {
        tensor<fp16, [1,1,1,33]> b = reduce_sum(x = a, axes = [1], keep_dims = true);
    } -> (b); }"""
    found = check(text, narrow)
    assert [d.code for d in found] == ["ANE132", "ANE132", "ANE211"]
    assert found[0].message == "rows of 66 bytes in fp16[1,64,1,33], want a multiple of 64"
    assert found[0].hint == "pad the last axis to 64"
    assert check(text, free) == ()


def test_a_file_overrides_each_answer(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "name": "desk",
            "base": "m4",
            "limits": {"ANE012": False, "ANE116": True},
            "dialect": "ios16",
            "numerics": "m5",
            "behaviour": {"binding": "declared", "programs": 55, "compile_pause_s": 1},
        },
    )
    found = target(path)
    assert found.name == "desk"
    assert found.limits == TARGETS["m4"].limits - {"ANE012"} | {"ANE116"}
    assert (found.dialect, found.numerics) == (IOS16, "m5")
    assert found.behaviour == Behaviour("declared", programs=55, compile_pause_s=1)


def test_a_file_switches_single_rules_of_the_arithmetic(tmp_path: Path) -> None:
    switched = {"overflow": "final", "subnormals": "flushed"}
    found = target(written(tmp_path, {"base": "m2", "arithmetic": switched})).arithmetic
    assert (found.target, found.overflow.value, found.subnormals.value) == (
        "m2",
        "final",
        "flushed",
    )
    paper = target(written(tmp_path, {"base": "paper", "arithmetic": {"subnormals": "flushed"}}))
    assert paper.arithmetic.overflow.value == "final"  # as the base has it
    other = target(written(tmp_path, {"base": "paper", "numerics": "m3"})).arithmetic
    assert (other.target, other.overflow.value) == ("m3", "sticky")  # all of another chip


def test_a_file_that_says_nothing_is_strict(tmp_path: Path) -> None:
    found = target(written(tmp_path, {}))
    assert (found.name, found.limits) == ("mac", TARGETS["strict"].limits)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the file is no object: got list"),
        ({"limit": {}}, "no such answer: got limit"),
        ({"base": "m9"}, "no such base: got m9"),
        ({"base": ["m1"]}, "no such base"),
        ({"limits": {"ANE999": True}}, "no such answer: got ANE999"),
        ({"limits": {"ANE012": "yes"}}, "ANE012 is no truth: got yes"),
        ({"limits": ["ANE012"]}, "limits is no object"),
        ({"dialect": "ios99"}, "dialect: got ios99"),
        ({"dialect": []}, "dialect: got"),
        ({"numerics": "m9"}, "numerics: got m9"),
        ({"arithmetic": "final"}, "arithmetic is no object: got str"),
        ({"arithmetic": {"overflow": 3}}, "arithmetic: overflow is no answer: got 3"),
        (
            {"arithmetic": {"overflow": "luck"}},
            ": arithmetic.overflow: no such answer: got luck, want final or sticky",
        ),
        (
            {"arithmetic": {"colour": "red"}},
            ": arithmetic: no such rule: got colour, want overflow or subnormals",
        ),
        (
            {"arithmetic": {"conv_3x3": "winograd"}},
            "no such answer: got winograd, want no other answer",
        ),
        ({"name": "strict"}, "not a name of its own"),
        ({"name": 3}, "not a name of its own"),
        ({"behaviour": {"bindings": "names"}}, "no such answer: got bindings"),
        ({"behaviour": {"binding": "luck"}}, "binding: got luck"),
        ({"behaviour": {"programs": -1}}, "behaviour: programs: got -1"),
        ({"behaviour": {"programs": True}}, "behaviour: programs: got True"),
        ({"behaviour": {"compile_pause_s": float("nan")}}, "compile_pause_s: got nan"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        target(written(tmp_path, document))


def test_a_target_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such target: got m9, want paper, strict"):
        target("m9")
    with pytest.raises(ConfigError, match="cannot be read"):
        target(tmp_path / "none.json")
    (tmp_path / "bad.json").write_bytes(b"{\xff")
    with pytest.raises(ConfigError, match="not JSON"):
        target(tmp_path / "bad.json")
