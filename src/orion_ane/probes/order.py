"""In which order surfaces meet ports: names, sizes and declaration disagree in turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orion_ane.mil import Program
from orion_ane.mil.dialect import Dialect
from orion_ane.probes.probe import Probe, Verdict
from orion_ane.probes.session import Outcome, Session
from orion_ane.probes.text import OF, Text, fp16
from orion_ane.types import Array, TensorType

LARGE = fp16(1, 768, 2, 32)
STRAIGHT, SWAPPED = "as declared", "swapped"
IN_ROWS = {"names": ("ANE019",), "sizes": ("ANE133",), "names@output": ("ANE019", "ANE136")}
OUT_ROWS = {"names": ("ANE003",), "sizes": ("ANE134",), "names@output": ("ANE003", "ANE135")}
IN_ALL, OUT_ALL = ("ANE019", "ANE133", "ANE136"), ("ANE003", "ANE134", "ANE135")
PAIRS: dict[str, tuple[tuple[str, TensorType], tuple[str, TensorType]]] = {
    "by name": (("second", OF), ("first", OF)),
    "by name@output": (("value", OF), ("value2", OF)),
    "large first": (("first", LARGE), ("second", OF)),
    "small first": (("first", OF), ("second", LARGE)),
}
"""Two ports as declared.  Only an order by what the name says meets them otherwise."""


def _inputs(dialect: Dialect, pair: tuple[tuple[str, TensorType], ...]) -> tuple[Program, Fed]:
    """One less the other, of 3 and 1."""
    text = Text(dialect)
    one, other = (text.input(name, of) for name, of in pair)
    widest = max((of for _, of in pair), key=lambda of: of.nbytes)
    fed = {
        name: np.full(of.shape, value, np.float16)
        for (name, of), value in zip(pair, (3, 1), strict=True)
    }
    return text.program(text.call("sub", widest, to="result", x=one, y=other)), fed


def _outputs(dialect: Dialect, pair: tuple[tuple[str, TensorType], ...]) -> tuple[Program, Fed]:
    """The first is 3 + 3, the other 3 x 3, whatever their sizes."""
    text = Text(dialect)
    wide = max((of for _, of in pair), key=lambda of: of.nbytes)
    x = text.input("given", wide)
    narrow = x
    if wide != OF:
        flags = text.told({"axes": (2,), "keep_dims": True})
        narrow = text.call("reduce_max", OF, x=x, **flags)
    ops = zip(("add", "mul"), pair, strict=True)
    made = [
        text.call(op, of, to=name, **dict.fromkeys(("x", "y"), x if of == wide else narrow))
        for op, (name, of) in ops
    ]
    return text.program(*made), {"given": np.full(wide.shape, 3, np.float16)}


def _met_inputs(outcome: Outcome) -> str:
    (value,) = (float(array.flat[0]) for array in outcome.found.values())
    return {2.0: STRAIGHT, -2.0: SWAPPED}.get(value, f"other: {value}")


def _met_outputs(outcome: Outcome) -> str:
    values = [float(array.flat[0]) for array in outcome.found.values()]
    return {"[6.0, 9.0]": STRAIGHT, "[9.0, 6.0]": SWAPPED}.get(str(values), f"other: {values}")


Fed = dict[str, Array]
Write = Callable[[Dialect, tuple[tuple[str, TensorType], ...]], tuple[Program, Fed]]


def _asked(session: Session, write: Write, met: Callable[[Outcome], str]) -> dict[str, str]:
    words = {}
    for what, pair in PAIRS.items():
        outcome = session.tried(*write(session.dialect, pair))
        words[what] = met(outcome) if outcome.ran else f"{outcome.stage}: {outcome.error}"
    return words


def binding_of(words: dict[str, str]) -> str:
    """The order that explains what was met; empty where none does."""
    name, suffix = words["by name"], words["by name@output"]
    large, small = words["large first"], words["small first"]
    if name == SWAPPED and suffix in (STRAIGHT, SWAPPED):
        return "names" if suffix == STRAIGHT else "names@output"
    if (name, suffix) != (STRAIGHT, STRAIGHT) or small == SWAPPED:
        return ""
    if large == SWAPPED or (large != STRAIGHT and small == STRAIGHT):
        return "sizes"  # a large port that meets the small surface may fail
    return "declared"


def _verdict(
    words: dict[str, str], rows: dict[str, tuple[str, ...]], every: tuple[str, ...], sizes: str
) -> Verdict:
    found = binding_of(words)
    is_unequal = words["small first"] == STRAIGHT  # which every order but a descending one takes
    limits = {sizes: not is_unequal}
    if not found:
        is_descending = words["by name"] == STRAIGHT and words["small first"] == SWAPPED
        word = "by size, the largest first" if is_descending else "not understood"
        # Equal sizes in the order of their names: that much is left where sizes decide.
        return Verdict(word, words, limits | dict.fromkeys(every, True), is_enough=is_descending)
    held = rows.get(found, ())
    limits |= {code: code in held for code in every}
    return Verdict(found, words, limits, {"binding": found})


def ask_inputs(session: Session) -> Verdict:
    """Two inputs, of which nothing but the order tells which is which."""
    words = _asked(session, _inputs, _met_inputs)
    if all(word.startswith(("compile", "run")) for word in words.values()):
        return Verdict("no two inputs run", words)
    return _verdict(words, IN_ROWS, IN_ALL, "ANE018")


def ask_outputs(session: Session) -> Verdict:
    """Two outputs likewise."""
    return _verdict(_asked(session, _outputs, _met_outputs), OUT_ROWS, OUT_ALL, "ANE002")


INPUTS = Probe(
    "input_order",
    "in which order do surfaces meet inputs, and may sizes differ?",
    ask_inputs,
    True,
    (*IN_ALL, "ANE018"),
)
OUTPUTS = Probe(
    "output_order",
    "in which order do surfaces meet outputs, and may sizes differ?",
    ask_outputs,
    True,
    (*OUT_ALL, "ANE002"),
)
