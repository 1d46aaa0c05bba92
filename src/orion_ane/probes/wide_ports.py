"""Whether ports, and values inside, may be fp32."""

from __future__ import annotations

import numpy as np

from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import OF, ROOMY, Text, counted
from orion_ane.types import DType, TensorType

WIDE = TensorType(DType.FP32, ROOMY)


def ask(session: Session) -> Verdict:
    """fp32 at the inputs, at the outputs, and in between."""
    words = {}
    for what, (first, inside, last) in {
        "input": (WIDE, OF, OF),
        "output": (OF, OF, WIDE),
        "inside": (OF, WIDE, OF),
    }.items():
        text = Text(session.dialect)
        value, at = text.input("given", first), first
        for of in (inside, last):
            if of != at:
                value = text.call("cast", of, x=value, dtype=text.const(str(of.dtype)))
                at = of
        sum_ = text.call("add", last, to="sum", x=value, y=value)
        x = counted().astype(first.dtype.numpy)
        outcome = session.tried(text.program(sum_), {"given": x})
        words[what] = outcome.seen(outcome.word((x + x).astype(np.float64)))
    is_right = {what: word == "right" for what, word in words.items()}
    limits = {"ANE104": not is_right["input"]}
    if is_right["input"]:
        limits["ANE155"] = not (is_right["inside"] and is_right["output"])
    runs = ", ".join(what for what, is_so in is_right.items() if is_so)
    return Verdict(f"fp32 as {runs}" if runs else "no fp32", words, limits)


PROBE = Probe("fp32_ports", "may ports be fp32?", ask, holds=("ANE104",))
