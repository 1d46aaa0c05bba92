"""How many weights and blob files a program may have."""

from __future__ import annotations

from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import Text, counted, filled

MOST = 16


def _summed(session: Session, weights: int, *, apart: bool, scalar: bool = False) -> str:
    """How x + w + w + … comes out, with each weight in a file of its own or not."""
    text = Text(session.dialect)
    total = text.input("given")
    for number in range(weights):
        path = f"@model_path/weights/{f'part{number:02d}' if apart else 'weight'}.bin"
        total = text.call("add", x=total, y=text.weight(filled(number), path))
    if scalar:
        total = text.call("mul", x=total, y=text.const(2.0))
    x = counted()
    outcome = session.tried(text.program(total), {"given": x})
    wanted = (x + sum(range(weights))) * (2 if scalar else 1)
    return outcome.seen(outcome.word(wanted))


def ask(session: Session) -> Verdict:
    """Many weights of one file, many files, and a scalar beside as many files as may be."""
    words = {
        "20 weights of one file": _summed(session, 20, apart=False),
        "16 files": _summed(session, MOST, apart=True),
        "17 files": _summed(session, MOST + 1, apart=True),
        "16 files and a scalar": _summed(session, MOST, apart=True, scalar=True),
    }
    is_right = {what: word == "right" for what, word in words.items()}
    limits = {"ANE218": not is_right["20 weights of one file"]}
    if is_right["16 files"]:
        limits["ANE101"] = not is_right["17 files"]
        limits["ANE102"] = not is_right["16 files and a scalar"]
    runs = [what for what, is_so in is_right.items() if is_so]
    return Verdict(f"run right: {', '.join(runs) or 'none'}", words, limits)


PROBE = Probe(
    "many_weights", "how many weights and files may a program have?", ask,
    holds=("ANE101", "ANE102"),
)  # fmt: skip
