"""Baselines: rows kept in a file, and what has become slower since."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion_ane.bench.harness import RATIO, Row
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
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> list[Row]:
    """The rows of a baseline.

    Raises:
        DataError: the file holds none.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return [_read(row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        want = "what --save-baseline writes"
        raise DataError(str(path), "not a baseline", got=repr(error)[:200], want=want) from error


def compare(path: Path, rows: Iterable[Row]) -> Comparison:
    """Hold new rows against those of a baseline.

    Raises:
        ConfigError: it was measured on another machine, or of something else.
        DataError: the file holds no baseline.
    """
    old, new = read(path), {row.name: row for row in rows}
    here = {row.machine for row in new.values()}
    if elsewhere := [row.machine for row in old if row.machine not in here]:
        hint = "--save-baseline writes one of this machine"
        got, want = elsewhere[0], ", ".join(here)
        raise ConfigError(str(path), "measured on another machine", got=got, want=want, hint=hint)
    pairs = [(row, new[row.name]) for row in old if row.name in new]
    if not pairs:
        raise ConfigError(str(path), "has no row that was measured now", want=", ".join(new))
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
