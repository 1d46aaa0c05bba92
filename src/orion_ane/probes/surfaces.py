"""How large surfaces have to be, and how their rows lie."""

from __future__ import annotations

from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import Text, counted, fp16
from orion_ane.types import TensorType

NARROW = {
    "rows of 16 bytes": fp16(1, 3072, 1, 8),
    "rows of 96 bytes": fp16(1, 512, 1, 48),
}
SMALL = {
    "16,384 elements": fp16(1, 512, 1, 32),
    "8,192 elements": fp16(1, 256, 1, 32),
    "64 elements": fp16(1, 2, 1, 32),
}
ODD = fp16(1, 769, 1, 32)


def doubled(session: Session, of: TensorType) -> tuple[str, str]:
    """How x + x comes out in ports of a type, and what was said."""
    text = Text(session.dialect)
    x = text.input("given", of)
    value = counted(of)
    outcome = session.tried(
        text.program(text.call("add", of, to="sum", x=x, y=x)), {"given": value}
    )
    word = outcome.word(value + value)
    return word, outcome.seen(word)


def ask_rows(session: Session) -> Verdict:
    """Ports whose rows do not fill 64 bytes."""
    found = {what: doubled(session, of) for what, of in NARROW.items()}
    words = [word for word, _ in found.values()]
    evidence = {what: seen for what, (_, seen) in found.items()}
    if words == ["right", "right"]:
        return Verdict("any rows", evidence, {"ANE132": False})
    fails = any(word in ("fails", "refused") for word in words)
    answer = "fails" if fails else "zeros"
    word = "fails" if fails else ", ".join(dict.fromkeys(words))
    return Verdict(f"whole rows alone: {word}", evidence, {"ANE132": True}, {"narrow_rows": answer})


def ask_sizes(session: Session) -> Verdict:
    """Ports that are small, or no multiple of 128 bytes."""
    found = {what: doubled(session, of) for what, of in SMALL.items()}
    words = {what: word == "right" for what, (word, _) in found.items()}
    odd, seen = doubled(session, ODD)
    evidence = {what: seen for what, (_, seen) in found.items()} | {"49,216 bytes": seen}
    limits = {"ANE004": not words["16,384 elements"], "ANE116": odd != "right"}
    if words["16,384 elements"]:
        limits["ANE115"] = not words["8,192 elements"]
    runs = [what for what, is_right in words.items() if is_right]
    return Verdict(f"down to {runs[-1]}" if runs else "large ones alone", evidence, limits)


ROWS = Probe("row_stride", "do rows that do not fill 64 bytes run?", ask_rows, holds=("ANE132",))
SIZES = Probe("small_surfaces", "how small may a surface be?", ask_sizes, holds=("ANE004",))
