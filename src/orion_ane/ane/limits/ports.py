"""Checks of a function's ports: order, size, rows, element types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal, TypeAlias

from orion_ane.ane.layout import ROW_BYTES, surface_bytes
from orion_ane.ane.limits.claims import Check
from orion_ane.ane.limits.subject import Finding, Ports, Subject
from orion_ane.types import DType, TensorType

Side: TypeAlias = Literal["input", "output"]

_SHOWN = 8
UPPER_BYTES = 128
"""What a surface is a multiple of (ANE116)."""
LEAST_ELEMENTS = 16384
"""Of a port (ANE115)."""


def _ports(subject: Subject, side: Side) -> Ports:
    return subject.inputs if side == "input" else subject.outputs


def _at(subject: Subject, side: Side) -> Callable[[str, str, str], Finding]:
    return subject.at_input if side == "input" else subject.at_output


def _each(subject: Subject) -> Iterator[tuple[Side, str, TensorType]]:
    sides: tuple[Side, ...] = ("input", "output")
    for side in sides:
        for name, of in _ports(subject, side):
            yield side, name, of


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def alphabetical(side: Side) -> Check:
    """Ports are declared in the order of their names."""

    def check(subject: Subject) -> Iterator[Finding]:
        names = [name for name, _ in _ports(subject, side)]
        ordered = sorted(names)
        for name, bound in zip(names, ordered, strict=True):
            if name != bound:
                message = f"{bound} is bound here: by name the order is {_listed(ordered)}"
                yield _at(subject, side)(name, message, "declare ports in the order of their names")
                return

    return check


def suffixed(side: Side) -> Check:
    """The names sort alike with `@output` behind each."""

    def check(subject: Subject) -> Iterator[Finding]:
        plain = sorted(name for name, _ in _ports(subject, side))
        behind = sorted(plain, key=lambda name: f"{name}@output")
        for name, other in zip(plain, behind, strict=True):
            if name != other:
                message = f"{other} comes before {name} where `@output` is added to names"
                hint = "choose names of which none begins another, as y_0 and y_1"
                yield _at(subject, side)(name, message, hint)
                return

    return check


def by_size(side: Side) -> Check:
    """No port is smaller than the one declared before it."""

    def check(subject: Subject) -> Iterator[Finding]:
        ports = _ports(subject, side)
        for (before, large), (name, small) in pairwise(ports):
            if surface_bytes(small) < surface_bytes(large):
                message = f"{small} is smaller than {before} {large} before it"
                hint = "order and name ports so that their sizes do not decrease"
                yield _at(subject, side)(name, message, hint)

    return check


def uniform(side: Side) -> Check:
    """All surfaces have one size."""

    def check(subject: Subject) -> Iterator[Finding]:
        ports = _ports(subject, side)
        sizes = {surface_bytes(of) for _, of in ports}
        if len(sizes) > 1:
            for name, of in ports:
                if surface_bytes(of) != max(sizes):
                    message = f"{surface_bytes(of)} bytes, another {side} has {max(sizes)}"
                    yield _at(subject, side)(name, message, f"pad every {side} to the largest")

    return check


def large(least: int) -> Check:
    """Every surface has at least so many bytes, as they lie packed (ANE020)."""

    def check(subject: Subject) -> Iterator[Finding]:
        for side, name, of in _each(subject):
            if of.nbytes < least:
                message = f"a surface of {of.nbytes} bytes, want at least {least}"
                yield _at(subject, side)(
                    name,
                    message,
                    "make the port longer, as `orion opt` does",
                )

    return check


def many_elements(least: int) -> Check:
    """Every port has at least so many elements."""

    def check(subject: Subject) -> Iterator[Finding]:
        for side, name, of in _each(subject):
            if of.elements < least:
                yield _at(subject, side)(name, f"{of} is below {least} elements", "")

    return check


def whole_rows(subject: Subject) -> Iterator[Finding]:
    """The last axis of every port fills rows of 64 bytes."""
    for side, name, of in _each(subject):
        last = of.shape[-1] if of.shape else 1
        row = last * of.dtype.itemsize
        if row % ROW_BYTES:
            per_row = ROW_BYTES // of.dtype.itemsize
            hint = f"pad the last axis to {-(-last // per_row) * per_row}"
            message = f"rows of {row} bytes in {of}, want a multiple of {ROW_BYTES}"
            yield _at(subject, side)(name, message, hint)


def upper_bytes(subject: Subject) -> Iterator[Finding]:
    """Surfaces are a multiple of 128 bytes."""
    for side, name, of in _each(subject):
        if surface_bytes(of) % UPPER_BYTES:
            message = f"a surface of {surface_bytes(of)} bytes, want a multiple of {UPPER_BYTES}"
            yield _at(subject, side)(name, message, "")


def no_ports_of(*dtypes: DType) -> Check:
    """No port has one of these element types."""

    def check(subject: Subject) -> Iterator[Finding]:
        for side, name, of in _each(subject):
            if of.dtype in dtypes:
                hint = "make the port fp16 and cast inside" if of.dtype == DType.FP32 else ""
                yield _at(subject, side)(name, f"is {of}, and {of.dtype} ports are refused", hint)

    return check


def single_input(subject: Subject) -> Iterator[Finding]:
    """There is one input."""
    if len(subject.inputs) > 1:
        name = subject.inputs[1][0]
        message = f"{len(subject.inputs)} inputs, want 1"
        yield subject.at_input(name, message, "pack them into one and slice")


def width_between(low: int, high: int) -> Check:
    """No port's last axis lies in a range."""

    def check(subject: Subject) -> Iterator[Finding]:
        for side, name, of in _each(subject):
            if of.shape and low <= of.shape[-1] <= high:
                message = f"axis W {of.shape[-1]} lies in {low} to {high}"
                yield _at(subject, side)(name, message, f"take {low - 1} or {high + 2}")

    return check


def width_at_most(most: int) -> Check:
    """No port's last axis is longer."""

    def check(subject: Subject) -> Iterator[Finding]:
        for side, name, of in _each(subject):
            if of.shape and of.shape[-1] > most:
                yield _at(subject, side)(name, f"axis W {of.shape[-1]} > {most}", "")

    return check


def long_names(subject: Subject) -> Iterator[Finding]:
    """No port has one of the short names that a report saw zeros with."""
    for side, name, _ in _each(subject):
        if name in {"x", "y", "mean", "var", "eps"}:
            yield _at(subject, side)(name, "a short lower-case name", "take a longer name")


def made_outputs(subject: Subject) -> Iterator[Finding]:
    """No output is an input, handed through."""
    inputs = {name for name, _ in subject.inputs}
    for name, _ in subject.outputs:
        if name in inputs:
            yield subject.at_output(name, "is an input", "return its identity under another name")


def defined_outputs(subject: Subject) -> Iterator[Finding]:
    """Every returned name is defined by the final text."""
    for name in subject.function.undefined:
        yield subject.at_output(name, "nothing defines it", "return a value that is left")
