"""Limit: a claim about the device, with who makes it, who contradicts it, and who keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from orion_ane.ane.limits.subject import Finding, Subject

Check: TypeAlias = Callable[[Subject], Iterable[Finding]]
Path: TypeAlias = Literal["in-memory", "e5rt", "both"]

CHIPS = ("m1", "m2", "m3", "m4", "m5")


class Scope(Enum):
    """What a limit is a property of."""

    OP = "op"
    PORT = "port"
    PROGRAM = "program"
    PROCESS = "process"
    BACKEND = "backend"

    def __str__(self) -> str:
        return self.value


class Symptom(Enum):
    """How breaking a limit shows, from silent to loud."""

    SILENT = "silent wrong"
    STALE = "stale"
    UNSTABLE = "unstable"
    SLOW = "slow"
    FAILS = "fails at run"
    CRASH = "crash"
    REJECTED = "rejected"

    def __str__(self) -> str:
        return self.value

    @property
    def is_silent(self) -> bool:
        """Whether the device says nothing."""
        return self in (Symptom.SILENT, Symptom.STALE, Symptom.SLOW)

    @property
    def rank(self) -> int:
        """Its place in a report: what nobody would notice comes first."""
        return list(Symptom).index(self)


class State(Enum):
    """What a claim is worth."""

    CLAIMED = "claimed"
    """Nobody contradicts it."""
    DISPUTED = "disputed"
    """Contradicted, but not by a program of this very form that is reported to run."""
    OPEN = "open"
    """A program that is reported to run contradicts it, or its terms are not known."""
    ARTEFACT = "artefact"
    """Explained by a fault of whoever saw it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Limit:
    """A row: the claim, its evidence, and exactly one of `check`, `kept_by` and `informs`.

    Attributes:
        code: `ANE001` to `ANE020` are the paper's, under its numbers; later ones start at 101.
        title: the rule, as a clause that is true where it is kept.
        scope: what it is a property of.
        symptom: what happens where it is broken.
        sources: keys of `docs/limits.md`.
        chips: those it is claimed for.
        path: how programs reach the device where it was seen.
        state: what it is worth.
        contradicted_by: who reports otherwise, with what.
        check: finds the places of a program that break it.
        kept_by: the object, by dotted name, whose construction keeps it.
        informs: the object, by dotted name, that it is knowledge for.
        is_old_text: it is claimed of `program(1.0)` alone.
        note: what a reader should know besides.
    """

    code: str
    title: str
    scope: Scope
    symptom: Symptom
    sources: tuple[str, ...]
    chips: tuple[str, ...] = CHIPS
    path: Path = "in-memory"
    state: State = State.CLAIMED
    contradicted_by: tuple[str, ...] = ()
    check: Check | None = None
    kept_by: str = ""
    informs: str = ""
    is_old_text: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        kept = [bool(self.check), bool(self.kept_by), bool(self.informs)]
        assert kept.count(True) == 1, f"{self.code}: want one of check, kept_by and informs"
        assert self.sources, f"{self.code}: no source"

    @property
    def held(self) -> str:
        """How the project deals with it, in a word or two."""
        if self.check:
            return "checked"
        return f"kept by {self.kept_by}" if self.kept_by else f"informs {self.informs}"
