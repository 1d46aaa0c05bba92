"""Does it compute at all: a weight of a blob file, a sum and a product."""

from __future__ import annotations

from orion_ane.mil import DIALECTS, Program
from orion_ane.mil.dialect import Dialect
from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import OF, Text, counted, filled


def simple(dialect: Dialect) -> Program:
    """3 x + x, in whole numbers that every arithmetic has."""
    text = Text(dialect)
    x = text.input("given")
    product = text.call("mul", x=x, y=text.weight(filled(3)))
    return text.program(text.call("add", to="sum", x=product, y=x))


def ask(session: Session) -> Verdict:
    """The newest text that it takes and computes right."""
    words = {}
    for name in reversed(DIALECTS):
        program = simple(DIALECTS[name])
        x = counted(OF)
        outcome = session.tried(program, {"given": x})
        words[name] = outcome.seen(outcome.word(4 * x))
    good = [name for name, word in words.items() if word == "right"]
    if not good:
        return Verdict("nothing runs right", words, is_enough=False)
    session.dialect = DIALECTS[good[0]]
    session.know(simple(session.dialect))
    limits = {"ANE109": good[0] != "ios18"}
    return Verdict(f"{', '.join(good)} run right", words, limits, dialect=good[0])


PROBE = Probe("computes", "does a program run right, and in which dialects of its text?", ask, True)
