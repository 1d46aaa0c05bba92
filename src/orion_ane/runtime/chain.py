"""Chains: programs that run one after another without their values coming back in between.

A device whose programs run in another process answers once for all of them.  What is said here is
said of values by name: which of them a program reads and writes, and what the device does with them
between two programs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from orion_ane.mil.program import Program
from orion_ane.runtime.backend import Executable
from orion_ane.types import Array


@dataclass(frozen=True)
class Call:
    """A program runs.

    Attributes:
        program: its place in the chain's list.
        reads: the value at each input port, by the port's name.
        writes: the value at each output port that somebody reads, likewise.
    """

    program: int
    reads: Mapping[str, str]
    writes: Mapping[str, str]


@dataclass(frozen=True)
class Lanes:
    """Some of a value's lanes, its last axis, are laid over those of another.

    Attributes:
        of, to: the values; `to` keeps its other lanes, which are zero at first.
        count: which of a run's numbers says how many lanes.
        first: which says the first of them in `of`.
        at: which says the first in `to`.
    """

    of: str
    to: str
    count: str
    first: str
    at: str


@dataclass(frozen=True)
class Rescaled:
    """A value in fp32 over one number, times another, and rounded to its own type again.

    Attributes:
        of, to: the values.
        over, by: which of a run's numbers.
    """

    of: str
    to: str
    over: str
    by: str


Link: TypeAlias = Call | Lanes | Rescaled


class Chain(Protocol):
    """A chain that a device keeps."""

    def run(
        self,
        loaded: Sequence[Executable],
        given: Mapping[str, Array],
        *,
        changed: Collection[str] | None = None,
        numbers: Mapping[str, float] | None = None,
        links: tuple[int, int] | None = None,
        takes: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """Values that come out, as new arrays.

        Args:
            loaded: what runs at each place, in any weights.
            given: every value that no link makes, of all links before the last that is done.
            changed: those that are other than in the run before; by default, all.
            numbers: those that links name.
            links: the first that is done, and the first that is not; by default, all are.  The run
                before has done those ahead of them, or the device does them again.
            takes: which of the values that these make come out; by default, all that may.

        Raises:
            BackendError: a value is missing or not of its port's type, a program is closed, or
                the device failed.
        """
        ...

    def close(self) -> None:
        """Give it up; a second call does nothing."""
        ...


@runtime_checkable
class Chains(Protocol):
    """A device that keeps chains."""

    def chain(
        self, programs: Sequence[Program], links: Sequence[Link], takes: Collection[str]
    ) -> Chain:
        """A chain of such programs.

        Args:
            programs: whose ports they have; any executable of the same ports may run.
            links: what is done, in order.
            takes: the values that come out.
        """
        ...
