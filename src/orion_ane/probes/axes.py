"""Along which axes softmax and reductions run."""

from __future__ import annotations

import numpy as np

from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import OF, Text, fp16, normal
from orion_ane.types import TensorType

NEAR = 0.02
SOFTMAX: dict[str, tuple[TensorType, int]] = {
    "64 lanes": (fp16(1, 512, 1, 64), -1),
    "1024 channels": (fp16(1, 1024, 1, 32), 1),
    "96 lanes": (fp16(1, 512, 1, 96), -1),
    "768 channels": (OF, 1),
}


def ask_softmax(session: Session) -> Verdict:
    """Softmax along lanes and channels, of powers of two and others."""
    words = {}
    for what, (of, axis) in SOFTMAX.items():
        text = Text(session.dialect)
        y = text.call("softmax", of, to="result", x=text.input("given", of), axis=text.const(axis))
        x = normal(1, of)
        outcome = session.tried(text.program(y), {"given": x})
        e = np.exp(x.astype(np.float64))
        wanted = e / e.sum(axis, keepdims=True)
        # In parts of the largest: a sum of many small numbers is not asked for here.
        words[what] = outcome.seen(outcome.word(wanted, within=NEAR * float(wanted.max())))
    is_right = [word == "right" for word in words.values()]
    limits = {"ANE194": not all(is_right)} if all(is_right[:2]) else {}
    word = "any axis" if all(is_right) else "powers of two" if all(is_right[:2]) else "not all"
    return Verdict(word, words, limits)


def ask_reduction(session: Session) -> Verdict:
    """The largest of 768 channels, taken from each of them."""
    text = Text(session.dialect)
    x = text.input("given")
    top = text.call(
        "reduce_max", fp16(1, 1, 1, 32), x=x, **text.told({"axes": (1,), "keep_dims": True})
    )
    value = normal(2)
    outcome = session.tried(
        text.program(text.call("sub", to="result", x=x, y=top)), {"given": value}
    )
    word = outcome.word(value - value.max(1, keepdims=True), within=1e-3)
    return Verdict(word, {"768 channels": outcome.seen(word)}, {"ANE195": word != "right"})


SOFT = Probe("softmax_axes", "along which axes does softmax run?", ask_softmax)
REDUCTION = Probe("channel_reduction", "does a reduction run over 768 channels?", ask_reduction)
