"""Asks the probes, and puts the answers together as a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from orion_ane.ane.numerics import NUMERICS as ARITHMETIC
from orion_ane.ane.targets import NUMERICS, TARGETS
from orion_ane.errors import OrionError
from orion_ane.probes.probe import Finding, Probe, Verdict
from orion_ane.probes.session import Session, worded
from orion_ane.probes.table import PROBES

FAILURES = (OrionError, OSError, ArithmeticError, LookupError, ValueError, MemoryError)
"""What a device's answers, or their absence, may make of a probe; the next is asked anyway."""
UPDATES = ("donor", "weights_as_inputs")
"""One of the two has to work, or every step of training compiles all programs anew."""
DECLARED = "declared"
SWITCHES = ("overflow", "subnormals")


def probe(
    session: Session, probes: Iterable[Probe], tell: Callable[[Finding], None] = lambda _: None
) -> tuple[Finding, ...]:
    """What comes of probes, each for itself.

    Args:
        session: the device.
        probes: what is asked, in order; the first, which finds the dialect, is asked anyway.
        tell: hears of each finding at once.
    """
    first = PROBES["computes"]
    chosen = [first, *(one for one in probes if one is not first)]
    return tuple(_told(session, chosen, tell))


def _told(
    session: Session, probes: Sequence[Probe], tell: Callable[[Finding], None]
) -> Iterator[Finding]:
    for one in probes:
        try:
            finding = Finding(one, one.ask(session))
        except FAILURES as error:
            finding = Finding(one, failed(one, error), has_failed=True)
            session.renew()
        tell(finding)
        yield finding


def failed(one: Probe, error: Exception) -> Verdict:
    """No answer: rows that it would have decided are held."""
    word = f"failed: {worded(error) or type(error).__name__}"
    return Verdict(word, limits=dict.fromkeys(one.holds, True), is_enough=False)


def passes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """What stands against using the device; nothing where it passes."""
    by_name = {finding.probe.name: finding for finding in findings}
    reasons = []
    for one in PROBES.values():
        if not one.is_essential:
            continue
        found = by_name.get(one.name)
        if found is None:
            reasons.append(f"{one.name}: not asked")
        elif not found.verdict.is_enough:
            reasons.append(f"{one.name}: {found.verdict.word}")
    words = {name: by_name[name].verdict.word for name in UPDATES if name in by_name}
    if words.get("donor") != "new" and words.get("weights_as_inputs") != "right":
        said = ", ".join(f"{name} {word}" for name, word in words.items()) or "not asked"
        reasons.append(f"no way to update weights: {said}")
    if len(orders := _orders(findings)) > 1:
        both = " and ".join(sorted(orders))
        reasons.append(f"inputs and outputs have each an order of their own: {both}")
    return tuple(reasons)


def _orders(findings: Sequence[Finding]) -> set[str]:
    """The orders that inputs and outputs have, where that is another than as declared."""
    found = {finding.verdict.behaviour.get("binding", DECLARED) for finding in findings}
    return found - {DECLARED}


def document(findings: Sequence[Finding], *, base: str = "strict") -> dict[str, Any]:
    """A target file's content: the base with every answer in its place.

    Args:
        findings: of the probes.
        base: the target that answers what nobody asked.
    """
    limits: dict[str, bool] = {}
    behaviour: dict[str, Any] = {}
    facts: dict[str, str] = {}
    dialect = TARGETS[base].dialect.name
    for finding in findings:
        verdict = finding.verdict
        limits |= verdict.limits
        behaviour |= verdict.behaviour
        facts |= verdict.facts
        dialect = verdict.dialect or dialect
    # Rows say on which side an order shows: where it is one side's alone, that is the order.
    if orders := _orders(findings):
        behaviour["binding"] = min(orders)
    chip = chip_of(facts, TARGETS[base].numerics)
    known = {rule: facts[rule] for rule in SWITCHES if rule in facts}
    rules = dict(ARITHMETIC[chip].rules())
    switched = {rule: answer for rule, answer in known.items() if rules[rule].value != answer}
    return {
        "base": base,
        "limits": dict(sorted(limits.items())),
        "dialect": dialect,
        "numerics": chip,
        "arithmetic": switched,
        "behaviour": behaviour,
    }


def chip_of(facts: dict[str, str], usual: str) -> str:
    """The chip whose numbers are those that were seen: the usual one, where it has them."""

    def agrees(chip: str) -> bool:
        rules = ARITHMETIC[chip]
        clamps = "clamps" if rules.slice_limit.value is not None else "kept"
        conv = facts.get("conv_3x3", rules.conv_3x3.value)
        return conv == rules.conv_3x3.value and facts.get("slice", clamps) == clamps

    return next((chip for chip in (usual, "m1", "m4", "m5", *NUMERICS) if agrees(chip)), usual)
