"""Plans: what the worker does between two answers, so that a token pays one round trip.

A plan has surfaces of its own, which its programs read and write where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from orion_ane.types import Array, DType, TensorType


@dataclass(frozen=True)
class View:
    """A surface, and what lies in it.

    Attributes:
        surface: its number in the plan.
        type: of the whole surface.
        shape: of the value in its first corner.
    """

    surface: int
    type: TensorType
    shape: tuple[int, ...]

    def document(self) -> list[Any]:
        """As JSON has it."""
        return [self.surface, self.type.dtype.value, list(self.type.shape), list(self.shape)]

    @staticmethod
    def of(document: Sequence[Any]) -> View:
        """The view of `document`."""
        surface, dtype, shape, corner = document
        return View(surface, TensorType(DType(dtype), tuple(shape)), tuple(corner))

    def array(self, data: memoryview) -> Array:
        """The value, in a surface's bytes."""
        of = self.type
        whole = np.frombuffer(data, of.dtype.numpy, prod(of.shape)).reshape(of.shape)
        return whole[tuple(slice(size) for size in self.shape)]


@dataclass(frozen=True)
class Run:
    """A program runs.

    Attributes:
        program: its place in the list that each run names.
        inputs, outputs: the surfaces at its ports, in their order.
    """

    program: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """A value goes from one surface into another of another type or size."""

    of: View
    to: View


@dataclass(frozen=True)
class Lay:
    """Lanes of a value go over those of another; counts and places are numbers of the run."""

    of: View
    to: View
    count: int
    first: int
    at: int


@dataclass(frozen=True)
class Scale:
    """A value in fp32 over one number and times another goes into a surface."""

    of: View
    to: View
    over: int
    by: int


Step: TypeAlias = Run | Move | Lay | Scale
KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Run, Move, Lay, Scale)}


def document_of(steps: Sequence[Step]) -> list[list[Any]]:
    """Steps as JSON has them: the kind, then its fields."""
    return [[type(step).__name__, *map(_field, vars(step).values())] for step in steps]


def steps_of(document: list[list[Any]]) -> tuple[Step, ...]:
    """The steps of `document_of`."""
    return tuple(_step(kind, fields) for kind, *fields in document)


def _step(kind: str, fields: list[Any]) -> Step:
    if kind == Run.__name__:
        program, inputs, outputs = fields
        return Run(program, tuple(inputs), tuple(outputs))
    made: Step = KINDS[kind](*(View.of(f) if isinstance(f, list) else f for f in fields))
    return made


def _field(value: Any) -> Any:
    return value.document() if isinstance(value, View) else value
