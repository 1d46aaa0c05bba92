"""Whose numbers the device has: what it computes, against each known arithmetic bit for bit."""

from __future__ import annotations

import numpy as np

from orion_ane.ane.targets import Target
from orion_ane.mil import IOS18, Program
from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Outcome, Session
from orion_ane.probes.text import CONV, OF, ROOMY, Text, Value, filled, fp16
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.types import Array

K, N, M, LANES = 256, 256, 64, 96
GEMM = fp16(1, K, 1, LANES)
PUBLISHED = 0.0012522854527169441
"""The relative error of this product on M1, M2 Pro and M5 Pro, as others printed it."""
IMAGE = fp16(1, 64, 32, 32)
FAR = 5000
"""Beyond what a slice holds that begins behind 0 on M1 and M2 (ANE172)."""


def _exact(chip: str) -> Emulator:
    return Emulator(target=Target(chip, frozenset(), IOS18, chip), threads=1)


def _matches(program: Program, outcome: Outcome, x: Array, *chips: str) -> dict[str, int]:
    """In how many elements an output differs from each arithmetic."""
    (found,) = outcome.found.values()
    differ = {}
    for chip in (*chips, "fp32 sums"):
        engine = Emulator(target=None, threads=1) if chip == "fp32 sums" else _exact(chip)
        made = engine.compile(program)
        (wanted,) = made.run({"given": x}).values()
        made.close()
        differ[chip] = int(np.count_nonzero(found != wanted))
    return differ


def _conv(session: Session, weight: Array, **others: Value) -> Program:
    text = Text(session.dialect)
    of = GEMM if weight.shape[-1] == 1 else IMAGE
    x = text.input("given", of)
    told = text.told(CONV | others)
    return text.program(text.call("conv", of, to="y0", x=x, weight=text.weight(weight), **told))


def gemm_operands() -> tuple[Array, Array]:
    """The operands of the published workload, before they are rounded."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((M, K)).astype(np.float32) / np.sqrt(K)
    w = rng.standard_normal((N, K)).astype(np.float32) / np.sqrt(K)
    return x, w


def ask_sums(session: Session) -> Verdict:
    """A product of 256 terms, whose error others published, and a convolution of 3x3."""
    x, w = gemm_operands()
    port = np.zeros(GEMM.shape, np.float16)
    port[0, :, 0, :M] = x.T
    program = _conv(session, w.astype(np.float16).reshape(N, K, 1, 1))
    outcome = session.tried(program, {"given": port})
    if not outcome.ran:
        return Verdict("not decided", {"product": f"{outcome.stage}: {outcome.error}"})
    sums = _matches(program, outcome, port, "m1")
    y = next(iter(outcome.found.values()))[0, :, 0, :M].T.astype(np.float64)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    error = float(np.linalg.norm(y - exact) / np.linalg.norm(exact))
    evidence = {"elements that differ": sums, "relative error": error, "published": PUBLISHED}
    if sums["m1"]:
        word = "fp32 sums" if not sums["fp32 sums"] else "no known arithmetic"
        return Verdict(word, evidence)
    found = _winograd(session)
    evidence["3x3 convolution"] = found
    facts = {"sums": "product-sum"}
    if found["m1"] == 0 or found["m5"] == 0:
        facts["conv_3x3"] = "direct" if found["m1"] == 0 else "winograd"
    return Verdict(f"product-sums, {facts.get('conv_3x3', 'unknown')} 3x3", evidence, facts=facts)


def _winograd(session: Session) -> dict[str, int]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=IMAGE.shape).astype(np.float16)
    w = (rng.normal(size=(64, 64, 3, 3)) / 24).astype(np.float16)
    program = _conv(session, w, pad=(1, 1, 1, 1), pad_type="custom")
    outcome = session.tried(program, {"given": x})
    if not outcome.ran:
        return {"m1": -1, "m5": -1}
    return _matches(program, outcome, x, "m1", "m5")


def ask_overflow(session: Session) -> Verdict:
    """A sum that passes the ceiling on the way and comes back."""
    text = Text(session.dialect)
    w = np.zeros((768, 768, 1, 1), np.float16)
    w[:, :2] = 200
    y = text.call("conv", to="y0", x=text.input("given"), weight=text.weight(w), **text.told(CONV))
    x = np.zeros(ROOMY, np.float16)
    x[:, 0], x[:, 1] = 200, -200
    outcome = session.tried(text.program(y), {"given": x})
    if not outcome.ran:
        return Verdict("not decided", {"sum": f"{outcome.stage}: {outcome.error}"})
    value = float(next(iter(outcome.found.values())).flat[0])
    word = "final" if value == 0 else "sticky" if np.isinf(value) else f"other: {value}"
    known = {"overflow": word} if word in ("final", "sticky") else {}
    return Verdict(word, {"40000 - 40000": str(value)}, facts=known)


def ask_slices(session: Session) -> Verdict:
    """5000 in a slice of the lanes that does not begin at 0."""
    text = Text(session.dialect)
    wide = fp16(1, 768, 1, 64)
    x = text.input("given", wide)
    told = text.told({"begin": (0, 0, 0, 32), "size": ROOMY})
    y = text.call("slice_by_size", to="y0", x=x, **told)
    outcome = session.tried(text.program(y), {"given": filled(FAR, wide)})
    if not outcome.ran:
        return Verdict("not decided", {"slice": f"{outcome.stage}: {outcome.error}"})
    value = float(next(iter(outcome.found.values())).flat[0])
    clamps = value != FAR
    word = f"{FAR} becomes {value}" if clamps else "kept"
    limits = {"ANE172": clamps, "ANE173": clamps}
    return Verdict(
        word, {"value": str(value)}, limits, facts={"slice": "clamps" if clamps else "kept"}
    )


def ask_special(session: Session) -> Verdict:
    """What becomes of NaN, of an indeterminate form, and of a number below 2^-14."""
    text = Text(session.dialect)
    x = text.input("given")
    given = np.zeros(OF.shape, np.float16)
    given[0, 0, 0, :3] = np.nan, np.inf, 2.0**-20
    evidence = {}
    for what, op, other in (("sum", "add", x), ("difference", "sub", x)):
        text = Text(session.dialect)
        y = text.call(op, to="y0", x=text.input("given"), y=other)
        outcome = session.tried(text.program(y), {"given": given})
        if not outcome.ran:
            return Verdict("not decided", {what: f"{outcome.stage}: {outcome.error}"})
        value = next(iter(outcome.found.values()))[0, 0, 0, :3]
        evidence[what] = [str(number) for number in value]
    nan, _, small = (float(word) for word in evidence["sum"])
    kept = "flushed" if small == 0 else "kept"
    word = f"NaN + NaN is {nan}, inf - inf is {evidence['difference'][1]}, subnormals {kept}"
    return Verdict(word, {"of NaN, inf, 2^-20": evidence}, facts={"subnormals": kept})


SUMS = Probe("product_sums", "which chip's arithmetic do products have?", ask_sums)
OVERFLOW = Probe("overflow", "may a partial sum pass the ceiling?", ask_overflow)
SLICES = Probe(
    "slice_clamp", "are large numbers kept in a slice of the lanes?", ask_slices,
    holds=("ANE172", "ANE173"),
)  # fmt: skip
SPECIAL = Probe("special_values", "what becomes of NaN, inf - inf and small numbers?", ask_special)
