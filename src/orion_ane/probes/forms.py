"""Ops that were seen to be refused, with all their parameters and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf

import numpy as np

from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Session
from orion_ane.probes.text import CONV, OF, ROOMY, Text, Value, fp16
from orion_ane.types import Array, TensorType

NEAR = 0.02
"""How far a table of 33 knots may be off."""
X = (np.arange(OF.elements) % 61 / 16 + 0.25).astype(np.float16).reshape(ROOMY)
"""Numbers from 0.25 to 4."""


@dataclass(frozen=True)
class Form:
    """An op on x alone.

    Attributes:
        op: its name.
        parameters: all of them.
        means: what it is of x.
        of: the result's type.
        takes: the parameters that are x.
    """

    op: str
    parameters: dict[str, Value]
    means: Callable[[Array], Array]
    of: TensorType = OF
    takes: tuple[str, ...] = ("x",)

    def comes_out(self, session: Session, **others: Value) -> tuple[str, str]:
        """How it comes out with some parameters, and what was said."""
        text = Text(session.dialect)
        x = text.input("given")
        given = {key: [x, x] if key == "values" else x for key in self.takes}
        flags = text.told(others)
        y = text.call(self.op, self.of, to="result", **given, **flags)
        outcome = session.tried(text.program(y), {"given": X})
        word = outcome.word(self.means(X.astype(np.float64)), within=NEAR)
        return word, outcome.seen(word)


def _gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


FORMS = {
    "concat": Form(
        "concat",
        {"axis": 1, "interleave": False},
        lambda x: np.concatenate([x, x], 1),
        fp16(1, 1536, 1, 32),
        ("values",),
    ),
    "gelu": Form("gelu", {"mode": "EXACT"}, _gelu),
    "rsqrt": Form("rsqrt", {"epsilon": 0.0001}, lambda x: 1 / np.sqrt(x)),
    "inverse": Form("inverse", {"epsilon": 0.0001}, lambda x: 1 / x),
    "log": Form("log", {"epsilon": 0.0001}, np.log),
}
ROWS = {"concat": "ANE001", "gelu": "ANE010", "rsqrt": "ANE103", "inverse": "ANE105"}
DEMANDED = {"concat": {"axis": 1}, "gelu": {}, "rsqrt": {}, "inverse": {}, "log": {}}
"""What is left without the parameters that have a default."""


def of_op(name: str) -> Probe:
    """A probe of one op with all its parameters."""
    form, code = FORMS[name], ROWS[name]

    def ask(session: Session) -> Verdict:
        word, seen = form.comes_out(session, **form.parameters)
        limits = {code: word != "right"}
        evidence = {"with all parameters": seen}
        if name == "concat" and word == "right":
            last, seen = form.comes_out(session, **form.parameters | {"axis": -3})
            evidence["axis -3"] = seen
            limits["ANE139"] = last != "right"
        return Verdict(word, evidence, limits)

    return Probe(name, f"does {name} run with all its parameters?", ask, holds=(code,))


def ask_defaults(session: Session) -> Verdict:
    """The same ops without what has a default, where they run with it."""
    evidence, words = {}, []
    for name, form in FORMS.items():
        full, seen = form.comes_out(session, **form.parameters)
        if full != "right":
            evidence[name] = f"not with all parameters: {seen}"
            continue
        short, evidence[name] = form.comes_out(session, **DEMANDED[name])
        words.append(short)
    if not words:
        return Verdict("not decided", evidence)
    missed = any(word != "right" for word in words)
    word = "demanded" if missed else "may be left out"
    return Verdict(word, evidence, {"ANE131": missed})


def ask_flags(session: Session) -> Verdict:
    """A convolution and a softmax without the parameters that have a default."""
    evidence = {}
    for is_full in (True, False):
        text = Text(session.dialect)
        x = text.input("given")
        eye = np.eye(768, dtype=np.float16).reshape(768, 768, 1, 1)
        y = text.call(
            "conv", to="result", x=x, weight=text.weight(eye),
            **text.told(CONV if is_full else {}),
        )  # fmt: skip
        outcome = session.tried(text.program(y), {"given": X})
        evidence["written" if is_full else "left out"] = outcome.seen(outcome.word(X, within=NEAR))
    if evidence["written"] != "right":
        return Verdict("not decided", evidence)
    missed = evidence["left out"] != "right"
    return Verdict("demanded" if missed else "may be left out", evidence, {"ANE138": missed})


def ask_in_place(session: Session) -> Verdict:
    """A softmax's axis, as a named constant and in place."""
    evidence = {}
    x = X.astype(np.float64)
    wanted = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    for word in ("named", "in place"):
        text = Text(session.dialect)
        given = text.input("given")
        axis = text.const(-1) if word == "named" else text.inline(-1)
        y = text.call("softmax", to="result", x=given, axis=axis)
        outcome = session.tried(text.program(y), {"given": X})
        evidence[word] = outcome.seen(outcome.word(wanted, within=NEAR))
    if evidence["named"] != "right":
        return Verdict("not decided", evidence)
    refused = evidence["in place"] != "right"
    word = "named constants alone" if refused else "in place too"
    return Verdict(word, evidence, {"ANE012": refused})


DEFAULTS = Probe(
    "defaults", "may epsilon, mode and interleave be left out?", ask_defaults, holds=("ANE131",)
)
FLAGS = Probe("flags", "may a convolution's flags be left out?", ask_flags, holds=("ANE138",))
IN_PLACE = Probe(
    "in_place", "may a parameter be written in place?", ask_in_place, holds=("ANE012",)
)
