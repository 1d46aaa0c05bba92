"""Measuring: works taken in turn, and what their rates come to.

Everything is a rate, so more is better.  A ratio is taken within each round, between works that
ran one after the other, so that a machine which is busy for a while slows both.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from orion_ane.engine.threads import processors

Rates: TypeAlias = Mapping[str, float]
"""What one run of a work gives: a rate by the row's name."""
Work: TypeAlias = Callable[[], Rates]

RATIO = "x"
"""The unit of a rate over another."""


@dataclass(frozen=True)
class Row:
    """One measured thing, over all runs that counted."""

    name: str
    median: float
    p10: float
    p90: float
    unit: str
    runs: int
    machine: str

    def document(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


@dataclass
class Samples:
    """What the rounds gave, by row; each in the order of the rounds.

    Attributes:
        units: of the rows; also their order.
        rates: the rates of each.
    """

    units: dict[str, str]
    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, found: Rates) -> None:
        """Note the rates of a run; those of rows that nobody asked for are left out."""
        for name, rate in found.items():
            if name in self.units:
                self.rates.setdefault(name, []).append(rate)

    def ratio(self, name: str, over: Sequence[float], of: Sequence[float]) -> None:
        """A row of ratios, round by round."""
        self.units[name] = RATIO
        self.rates[name] = [a / b for a, b in zip(of, over, strict=True)]

    def rows(self) -> list[Row]:
        """All rows, ratios first."""
        of = machine()
        names = sorted(self.rates, key=lambda name: self.units[name] != RATIO)
        return [_row(name, self.rates[name], self.units[name], of) for name in names]


def interleaved(works: Mapping[str, Work], runs: int, take: Callable[[str, Rates], None]) -> None:
    """Run the works in turn: once uncounted, as it may compile and fill caches, then `runs` times.

    `take` is given each counted run's rates, with the work's name.
    """
    for round_ in range(runs + 1):
        for name, work in works.items():
            found = work()
            if round_:
                take(name, found)


def machine() -> str:
    """What the figures hold for, in a line."""
    from llvmlite import binding

    cpu, count = binding.get_host_cpu_name(), processors()
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()} {cpu}, {count} processors, Python {python}"


def load() -> float | None:
    """How many processes want to run, on average over a minute; None where nobody counts."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def _row(name: str, rates: Sequence[float], unit: str, of: str) -> Row:
    p10, median, p90 = (float(x) for x in np.quantile(rates, (0.1, 0.5, 0.9)))
    return Row(name, median, p10, p90, unit, len(rates), of)
