"""Programs that break limits: the cases of tests/filecheck/limits, made runnable and varied.

A case is text in short form.  Its blob references are laid out anew and its files are made up; what
is random around it may cure it, which is for `check` to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from orion_ane.mil import Port, Program
from orion_ane.mil.blob import ALIGNMENT, Blob, BlobDType, write_blobs
from orion_ane.mil.parse import parse
from orion_ane.types import Array, DType

FOLDER = Path(__file__).parent / "filecheck" / "limits"
WILD = 6000.0
"""A scale at which the fixed-point and saturating faults show."""

_REFERENCE = re.compile(
    r"tensor<(\w+), ?\[([\d, ]+)\]>\(BLOBFILE\(path=(?:tensor<)?string(?:, \[\]>)?\(\"([^\"]+)\"\),"
    r" offset=(?:tensor<)?uint64(?:, \[\]>)?\((\d+)\)\)\)"
)
_OUTPUTS = re.compile(r"\} -> \(([^)]*)\);")
_HEADER = re.compile(r"func main<\w+>\(([^)]*)\)")
_PORT = re.compile(r"(tensor<\w+, \[[\d,]*\]>) (\w+)")


@dataclass(frozen=True)
class Case:
    """One text that breaks the rows `codes`."""

    codes: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return "-".join(self.codes)


def _cases() -> tuple[Case, ...]:
    found = []
    for file in sorted(FOLDER.glob("*.mil")):
        if file.name == "clean.mil":
            continue
        for part in re.split(r"(?m)^// -----.*\n", file.read_text(encoding="utf-8")):
            head = re.search(r"(?m)^// LIMITS: \S+ (.+)$", part)
            if head is not None and "CLEAN" not in part:
                found.append(Case(tuple(head[1].split()), re.sub(r"(?m)^//.*\n?", "", part)))
    return tuple(found)


CASES = _cases()


def case_of(code: str) -> Case:
    """The first case of a row."""
    return next(case for case in CASES if code in case.codes)


def _made_up(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if not dtype.is_float:
        return rng.integers(0, 3, shape).astype(dtype.numpy)
    return (rng.standard_normal(shape) / 4).astype(dtype.numpy)


def with_files(text: str, rng: np.random.Generator) -> tuple[str, dict[str, bytes]]:
    """The text with references laid out anew, and the files that they lead to.

    A reference to no metadata stays as it is.
    """
    files: dict[str, list[Array]] = {}
    ends: dict[str, int] = {}

    def laid_out(found: re.Match[str]) -> str:
        dtype, sizes, path, offset = found.groups()
        shape = tuple(map(int, sizes.split(",")))
        of = DType(dtype)
        files.setdefault(path, []).append(_made_up(of, shape, rng))
        place = ends.get(path, ALIGNMENT)
        size = prod(shape) * of.itemsize
        ends[path] = -(-(place + ALIGNMENT + size) // ALIGNMENT) * ALIGNMENT
        if int(offset) < ALIGNMENT:
            return found[0]
        return found[0].replace(f"({offset})", f"({place})")

    changed = _REFERENCE.sub(laid_out, text)
    return changed, {path: _file(arrays) for path, arrays in files.items()}


def _file(arrays: list[Array]) -> bytes:
    blobs = [Blob(BlobDType.of(a.dtype), memoryview(a.tobytes()), a.size) for a in arrays]
    return bytes(write_blobs(blobs)[0])


def program(text: str, files: Mapping[str, bytes] | None = None) -> Program:
    """A text and its files, its ports named as in the text."""
    functions = parse(text, tolerant=True).functions
    graph = (functions.get("main") or next(iter(functions.values()))).graph
    ports = [
        tuple(Port(name, name, node.type) for name, node in side.items())
        for side in (graph.inputs, graph.outputs)
    ]
    return Program(text, files or {}, ports[0], ports[1])


def of_case(case: Case, rng: np.random.Generator) -> Program:
    """A case as it stands, with files."""
    return program(*with_files(case.text, rng))


def feed(of: Program, rng: np.random.Generator, scale: float = 1.0) -> dict[str, Array]:
    """Something for each input, by name."""
    found = {}
    for port in of.inputs:
        dtype, shape = port.of.dtype, port.of.shape
        if dtype is DType.BOOL:
            found[port.name] = np.asarray(rng.random(shape) < 0.5)
        elif dtype.is_float:
            found[port.name] = np.asarray(rng.standard_normal(shape) * scale, dtype.numpy)
        else:
            found[port.name] = np.asarray(rng.integers(0, 5, shape), dtype.numpy)
    return found


@st.composite
def varied(draw, case: Case) -> str:
    """A case's text with more around it: its ports keep their names, types and order."""
    text = case.text
    if text.count("func ") > 1:
        return text
    for kind, name in draw(st.permutations(_PORT.findall(_HEADER.search(text)[1]))):
        op = draw(st.sampled_from(["", "", "identity(x={0})", "add(x={0}, y={0})", "relu(x={0})"]))
        if op and "fp16" in kind:
            text = _renamed(text, name, f"{name}_inner", first=False)
            made = f"    {kind} {name}_inner = {op.format(name)};\n"
            text = re.sub(r"(func main[^{]*\{\n)", lambda m, made=made: m[0] + made, text, count=1)
    defined = {name: kind for kind, name in _PORT.findall(text.partition("{\n")[2])}
    for name in re.findall(r"\w+", _OUTPUTS.search(text)[1]):
        op = draw(st.sampled_from(["", "", "tanh", "exp", "relu"]))
        if op and "fp16" in defined.get(name, ""):
            body, end = text.split("} -> ")
            text = _renamed(body, name, f"{name}_inner", first=True)
            text += f"    {defined[name]} {name} = {op}(x={name}_inner);\n}} -> {end}"
    return text


def _renamed(text: str, name: str, to: str, *, first: bool) -> str:
    """A value under another name: where it is defined too, or behind the header alone."""
    head, brace, body = text.partition("{\n") if not first else ("", "", text)
    if "program(" in head + brace and not first:
        more, brace2, body = body.partition("{\n")
        head, brace = head + brace + more, brace2
    body, arrow, end = body.partition("} -> ")
    return head + brace + re.sub(rf"\b{name}\b(?!=)", to, body) + arrow + end
