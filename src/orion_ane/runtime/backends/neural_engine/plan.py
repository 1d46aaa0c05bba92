"""Plans: what the worker does between two answers, so that a token pays one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Place:
    """A surface of a loaded program.

    Attributes:
        program: its number.
        is_input: which side.
        port: its place there.
    """

    program: int
    is_input: bool
    port: int

    def document(self) -> list[int]:
        """As JSON has it."""
        return [self.program, int(self.is_input), self.port]


@dataclass(frozen=True)
class Write:
    """Bytes of the shared file go into a surface."""

    to: Place
    start: int
    size: int


@dataclass(frozen=True)
class Read:
    """The first bytes of a surface go into the shared file."""

    of: Place
    start: int
    size: int


@dataclass(frozen=True)
class Run:
    """A program runs on its surfaces."""

    program: int


@dataclass(frozen=True)
class Copy:
    """The first bytes of one surface go into another, and do not leave the worker."""

    of: Place
    to: Place
    size: int


@dataclass(frozen=True)
class Add:
    """The sum of two surfaces' first values, in fp32 and rounded once, goes into a third.

    Attributes:
        dtype: what all three hold: `fp16` or `fp32`.
        count: of values.
    """

    one: Place
    other: Place
    to: Place
    dtype: str
    count: int


Step: TypeAlias = Write | Read | Run | Copy | Add
KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Write, Read, Run, Copy, Add)}


def document_of(steps: Sequence[Step]) -> list[list[Any]]:
    """Steps as JSON has them: the kind, then its fields."""
    return [[type(step).__name__, *map(_field, vars(step).values())] for step in steps]


def steps_of(document: list[list[Any]]) -> tuple[Step, ...]:
    """The steps of `document_of`."""
    return tuple(KINDS[kind](*map(_place, fields)) for kind, *fields in document)


def _field(value: Any) -> Any:
    return value.document() if isinstance(value, Place) else value


def _place(value: Any) -> Any:
    return Place(value[0], bool(value[1]), value[2]) if isinstance(value, list) else value
