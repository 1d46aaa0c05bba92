"""Laws of the limits table."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from orion_ane.ane.limits import (
    CHIPS,
    LIMIT_BY_CODE,
    LIMITS,
    SOURCES,
    Limit,
    State,
    Symptom,
    key_of,
)

ROOT = Path(__file__).resolve().parents[3]


def limits(**changes) -> Limit:
    """A row that stands, but for the changes."""
    row = LIMIT_BY_CODE["ANE020"]
    fields = {name: getattr(row, name) for name in row.__dataclass_fields__}
    return Limit(**{**fields, **changes})


def test_the_papers_twenty_stand_under_its_numbers() -> None:
    paper = [row for row in LIMITS if any(source.startswith("OP ") for source in row.sources)]
    assert [row.code for row in paper[:20]] == [f"ANE{n:03}" for n in range(1, 21)]
    assert all(f"OP {n}" in row.sources for n, row in enumerate(paper[:20], 1))


def test_codes_are_unique_and_ordered() -> None:
    codes = [row.code for row in LIMITS]
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"ANE\d{3}", code) for code in codes)


@pytest.mark.parametrize("changes", [{"kept_by": ""}, {"informs": "orion_ane.types.DType"}])
def test_a_row_is_held_in_exactly_one_way(changes: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="want one of"):
        limits(**changes)


def test_a_row_names_its_source() -> None:
    with pytest.raises(AssertionError, match="no source"):
        limits(sources=())


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row.code)
def test_every_source_has_a_key(row: Limit) -> None:
    for source in (*row.sources, *row.contradicted_by):
        assert key_of(source) in SOURCES, source


@pytest.mark.parametrize("row", LIMITS, ids=lambda row: row.code)
def test_a_row_is_well_formed(row: Limit) -> None:
    assert set(row.chips) <= set(CHIPS)
    assert row.title[0].islower()
    assert not row.title.endswith(".")
    if row.state is State.DISPUTED:
        assert row.contradicted_by
    if row.state in (State.OPEN, State.ARTEFACT):
        assert row.contradicted_by or row.note, "an open row says why"


@pytest.mark.parametrize(
    "name", sorted({row.kept_by or row.informs for row in LIMITS} - {""}), ids=str
)
def test_what_keeps_or_needs_a_row_exists(name: str) -> None:
    module, *rest = _split(name)
    found = importlib.import_module(module)
    for part in rest:
        found = getattr(found, part)
    assert found is not None


def _split(name: str) -> list[str]:
    """The longest part that is a module, and the names below it."""
    words = name.split(".")
    for end in range(len(words) - 1, 0, -1):
        module = ".".join(words[:end])
        try:
            if importlib.util.find_spec(module) is not None:
                return [module, *words[end:]]
        except ModuleNotFoundError:
            continue
    raise AssertionError(name)


def test_silent_symptoms_come_before_loud_ones() -> None:
    loud = [symptom for symptom in Symptom if not symptom.is_silent]
    assert Symptom.SILENT.rank == 0
    assert max(s.rank for s in (Symptom.SILENT, Symptom.STALE)) < min(s.rank for s in loud)
    assert Symptom.REJECTED.rank == len(Symptom) - 1


def test_the_page_is_the_tables() -> None:
    spec = importlib.util.spec_from_file_location("limits_page", ROOT / "tools" / "limits_page.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / "docs" / "limits.md").read_text(encoding="utf-8") == tool.page()


WITH_FILES = {"ANE101", "ANE102", "ANE137", "ANE164"}  # of whole programs: see test_check.py


def test_every_checked_row_has_an_invalid_program_with_its_message() -> None:
    cases = "".join(
        file.read_text(encoding="utf-8")
        for file in (ROOT / "tests" / "filecheck" / "limits").glob("*.mil")
        if file.name != "clean.mil"
    )
    shown = set(re.findall(r"^// CHECK.*\((ANE\d{3}), ", cases, re.MULTILINE))
    assert shown == {row.code for row in LIMITS if row.check} - WITH_FILES
