"""Watch: the ranges of all programs that a session runs, measured beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orion_ane.engine.compiling import clock
from orion_ane.engine.ranges import Range, RangeReport
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.portable import PortableProgram
from orion_ane.runtime.ranges import ranges
from orion_ane.types import Array


@dataclass(frozen=True)
class Seen:
    """A tensor, and which of a model's programs it is in."""

    program: str
    range: Range

    def __str__(self) -> str:
        return f"{self.program}: {self.range}"


class Watch:
    """Measures every run that it is shown; devices that show nothing inside are passed over.

    Attributes:
        seconds: what that took so far.
    """

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], RangeReport] = {}
        self.seconds = 0.0

    def clock(self) -> float:
        """Seconds that only grow, without those that measuring or compiling loops took."""
        return clock() - self.seconds

    def see(self, label: str, executable: Executable, inputs: Mapping[str, Array]) -> None:
        """Measure a run of the program that a user knows by this label."""
        if not isinstance(executable, PortableProgram):
            return
        started = clock()
        key = (label, executable.program.code_key)
        found, before = ranges(executable, inputs), self._reports.get(key)
        self._reports[key] = found if before is None else before.merged(found)
        self.seconds += clock() - started

    @property
    def first_bad(self) -> Seen | None:
        """The first tensor that is not finite though all that it was made of is."""
        seen = (self._seen(label, report.first_bad) for (label, _), report in self._reports.items())
        return next((found for found in seen if found is not None), None)

    @property
    def nearest(self) -> Seen | None:
        """The sum of products that comes nearest to its ceiling."""
        seen = [self._seen(label, report.nearest) for (label, _), report in self._reports.items()]
        known = [found for found in seen if found is not None]
        return min(known, key=lambda found: found.range.room, default=None)

    @staticmethod
    def _seen(label: str, found: Range | None) -> Seen | None:
        return None if found is None else Seen(label, found)
