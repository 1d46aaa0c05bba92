"""Probe: a question to a device, how it is asked, and what follows from the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orion_ane.probes.session import Session


@dataclass(frozen=True)
class Verdict:
    """An answer.

    Attributes:
        word: the answer in a word or two.
        evidence: what was seen, as JSON has it.
        limits: whether rows of the limits table hold, as far as this decides it.
        behaviour: answers of a target's `Behaviour`.
        facts: what is known of its arithmetic: rules of `Numerics` by name.
        dialect: of the text it takes.
        is_enough: the device can be used, as far as this is concerned.
    """

    word: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, bool] = field(default_factory=dict)
    behaviour: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    dialect: str | None = None
    is_enough: bool = True


@dataclass(frozen=True)
class Probe:
    """A row of the table.

    Attributes:
        name: by which it is asked for.
        question: in words.
        ask: asks it; it may raise whatever a device makes of it.
        is_essential: without a good answer no program can be trusted to run right.
        holds: rows that are held where asking failed: nobody then knows better.
        is_slow: it is asked only when it is named, or all are.
    """

    name: str
    question: str
    ask: Callable[[Session], Verdict]
    is_essential: bool = False
    holds: tuple[str, ...] = ()
    is_slow: bool = False


@dataclass(frozen=True)
class Finding:
    """What came of a probe.

    Attributes:
        probe: which.
        verdict: the answer; where asking failed, its word says so.
        has_failed: there is no answer.
    """

    probe: Probe
    verdict: Verdict
    has_failed: bool = False

    def row(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "probe": self.probe.name,
            "question": self.probe.question,
            "verdict": self.verdict.word,
            "evidence": {**self.verdict.evidence, **self._decided()},
        }

    def _decided(self) -> dict[str, Any]:
        parts = {"limits": self.verdict.limits, "behaviour": self.verdict.behaviour}
        return {key: dict(part) for key, part in parts.items() if part}
