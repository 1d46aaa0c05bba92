"""How many inputs a program may have, and whether weights may be among them."""

from __future__ import annotations

import numpy as np

from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import Text, filled, fp16

SQUARE = fp16(1, 24, 32, 32)


def ask_two(session: Session) -> Verdict:
    """The sum of two inputs, which no order changes."""
    text = Text(session.dialect)
    sum_ = text.call("add", to="sum", x=text.input("first"), y=text.input("second"))
    outcome = session.tried(text.program(sum_), {"first": filled(3), "second": filled(1)})
    word = outcome.word(filled(4))
    return Verdict(word, {"sum": outcome.seen(word)}, {"ANE111": word != "right"})


def ask_weights(session: Session) -> Verdict:
    """A product of two inputs, both whole numbers."""
    text = Text(session.dialect)
    names = {"first": text.input("first", SQUARE), "second": text.input("second", SQUARE)}
    flags = text.told({"transpose_x": False, "transpose_y": False})
    product = text.call("matmul", SQUARE, to="sum", x=names["first"], y=names["second"], **flags)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, SQUARE.shape).astype(np.float16) for _ in range(2))
    outcome = session.tried(text.program(product), {"first": x, "second": w})
    word = outcome.word(np.matmul(x.astype(np.float64), w.astype(np.float64)))
    return Verdict(word, {"product": outcome.seen(word)})


TWO = Probe("two_inputs", "may a program have two inputs?", ask_two, holds=("ANE111",))
WEIGHTS = Probe("weights_as_inputs", "may a product's weights be an input?", ask_weights)
