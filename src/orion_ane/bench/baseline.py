"""Baselines: rows kept in a file, and what has become slower since."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion_ane.artefacts.atomic import naming
from orion_ane.bench import bandwidth
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


@dataclass(frozen=True)
class Baseline:
    """Rows that were kept.

    Attributes:
        path: the file.
        rows: all of them.
        settings: what they were measured with; None in a file that does not say.
    """

    path: Path
    rows: tuple[Row, ...]
    settings: Mapping[str, Any] | None

    def want_same(self, settings: Mapping[str, Any]) -> None:
        """Refuse to hold rows against those of something else.

        Raises:
            ConfigError: a setting differs; all that do are named.
        """
        if self.settings is None:
            return
        names = [*dict.fromkeys([*settings, *self.settings])]
        was, now = (
            ", ".join(
                f"{name} {of.get(name, 'unsaid')}"
                for name in names
                if settings.get(name) != (self.settings or {}).get(name)
            )
            for of in (self.settings, settings)
        )
        if was:
            hint = "ask for the same, or have --save-baseline write one of this"
            what = "measured with other settings"
            raise ConfigError(str(self.path), what, got=was, want=now, hint=hint)


def save(path: Path, rows: Iterable[Row], settings: Mapping[str, Any]) -> None:
    """Write a baseline, in the place of an older one, with what it was measured with."""
    document = {"settings": dict(settings), "rows": [row.document() for row in rows]}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path):
        beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> Baseline:
    """A baseline of this machine.

    Raises:
        ConfigError: it was measured on another machine.
        DataError: the file holds none.
    """
    found, here = _parsed(path), machine()
    if elsewhere := [row.machine for row in found.rows if row.machine != here]:
        hint = "--save-baseline writes one of this machine"
        got = elsewhere[0]
        raise ConfigError(str(path), "measured on another machine", got=got, want=here, hint=hint)
    return found


def is_baseline(path: Path) -> bool:
    """Whether a file has what `save` writes, whichever machine's."""
    try:
        return path.is_file() and _parsed(path) is not None
    except (DataError, OSError):
        return False


def _parsed(path: Path) -> Baseline:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(_read(row) for row in document["rows"])
        settings = None if "settings" not in document else {**document["settings"]}
    except (ValueError, KeyError, TypeError) as error:
        want = "what --save-baseline writes"
        raise DataError(str(path), "not a baseline", got=repr(error)[:200], want=want) from error
    return Baseline(path, rows, settings)


def is_ours(name: str, unit: str, peers: Collection[str]) -> bool:
    """Whether a row is a rate of our own, which a baseline may be missed by.

    A ratio falls where the memory or a peer was faster, and their own rates are no work of ours;
    of memory that is taken, less is better.
    """
    theirs = any(name.endswith(f", {peer}") for peer in peers)
    return unit not in (RATIO, "GB") and not theirs and not name.endswith((*bandwidth.UNITS,))


def compare(old: Iterable[Row], rows: Iterable[Row], peers: Collection[str] = ()) -> Comparison:
    """Hold new rows of our own against those of a baseline.

    Args:
        old: the baseline's.
        rows: the new ones, by whomever.
        peers: the names of those whose rates are among them.

    Raises:
        ConfigError: it was measured of something else.
    """
    new = {row.name: row for row in rows}
    pairs = [(row, new[row.name]) for row in old if row.name in new]
    if not pairs:
        raise ConfigError("--baseline", "has no row that was measured now", want=", ".join(new))
    slower = tuple(
        Slower(now.name, was.median, now.median, now.unit)
        for was, now in pairs
        if is_ours(now.name, now.unit, peers) and now.median < (1 - ALLOWED) * was.median
    )
    return Comparison(slower, tuple(row.name for row in old if row.name not in new))


def _read(row: dict[str, Any]) -> Row:
    found = Row(**row)
    numbers = (found.median, found.p10, found.p90)
    if not all(isinstance(x, float | int) and x > 0 for x in numbers):
        raise ValueError(f"{found.name} is no rate")
    return found
