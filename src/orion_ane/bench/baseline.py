"""Baselines: rows kept in a file, and what has become slower since."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion_ane.artefacts.atomic import naming
from orion_ane.bench.harness import RATIO, Row, machine
from orion_ane.errors import ConfigError, DataError

ALLOWED = 0.15
"""The share of a rate that may be lost before it counts."""


@dataclass(frozen=True)
class Slower:
    """A row that lost more than is allowed."""

    name: str
    was: float
    now: float
    unit: str

    def __str__(self) -> str:
        lost = 1 - self.now / self.was
        return f"{self.name}: {self.now:.4g} {self.unit}, was {self.was:.4g}: {lost:.0%} less"


@dataclass(frozen=True)
class Comparison:
    """What a baseline says of new rows.

    Attributes:
        slower: rows that lost more than is allowed.
        missing: rows of the baseline that were not measured this time.
    """

    slower: tuple[Slower, ...]
    missing: tuple[str, ...]


def save(path: Path, rows: Iterable[Row]) -> None:
    """Write a baseline, in the place of an older one."""
    text = json.dumps({"rows": [row.document() for row in rows]}, indent=2, ensure_ascii=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path):
        beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> list[Row]:
    """The rows of a baseline of this machine.

    Raises:
        ConfigError: it was measured on another machine.
        DataError: the file holds none.
    """
    try:
        rows = [_read(row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        want = "what --save-baseline writes"
        raise DataError(str(path), "not a baseline", got=repr(error)[:200], want=want) from error
    here = machine()
    if elsewhere := [row.machine for row in rows if row.machine != here]:
        hint = "--save-baseline writes one of this machine"
        got = elsewhere[0]
        raise ConfigError(str(path), "measured on another machine", got=got, want=here, hint=hint)
    return rows


def compare(old: Iterable[Row], rows: Iterable[Row]) -> Comparison:
    """Hold new rows against those of a baseline.

    Raises:
        ConfigError: it was measured of something else.
    """
    new = {row.name: row for row in rows}
    pairs = [(row, new[row.name]) for row in old if row.name in new]
    if not pairs:
        raise ConfigError("--baseline", "has no row that was measured now", want=", ".join(new))
    slower = tuple(
        Slower(now.name, was.median, now.median, "times" if now.unit == RATIO else now.unit)
        for was, now in pairs
        if now.median < (1 - ALLOWED) * was.median
    )
    return Comparison(slower, tuple(row.name for row in old if row.name not in new))


def _read(row: dict[str, Any]) -> Row:
    found = Row(**row)
    numbers = (found.median, found.p10, found.p90)
    if not all(isinstance(x, float | int) and x > 0 for x in numbers):
        raise ValueError(f"{found.name} is no rate")
    return found
