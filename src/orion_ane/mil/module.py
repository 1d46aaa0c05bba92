"""Module: the functions of one MIL text, each with its graph and its statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from orion_ane.errors import MilError
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.mil.arguments import Argument
from orion_ane.mil.dialect import Dialect


class Place(NamedTuple):
    """Where something stands in a text; the line and column are counted when asked for."""

    text: str
    offset: int

    @property
    def line(self) -> int:
        """From 1."""
        return self.text.count("\n", 0, self.offset) + 1

    @property
    def column(self) -> int:
        """From 1."""
        return self.offset - self.text.rfind("\n", 0, self.offset)


class Statement(NamedTuple):
    """One statement as it is written.

    Attributes:
        op: the MIL op; empty where a fault stands before it.
        results: the names that it defines.
        args: what it is given, by parameter; a named constant is its value here.
        inline: the parameters written in place rather than as the name of a constant.
        nodes: the values that it defines; none where it names a constant of the text.
        place: its first letter.
        problem: why no row of the op table reads it; only a tolerant parse leaves such ones.
    """

    op: str
    results: tuple[str, ...]
    args: Mapping[str, Argument]
    inline: tuple[str, ...]
    nodes: tuple[Node, ...]
    place: Place
    problem: MilError | None


@dataclass(frozen=True, eq=False)
class Function:
    """A graph under the rules of an opset, 15 to 18, and the text that it was read from.

    Attributes:
        graph: what it computes.
        opset: of the text.
        statements: in the text's order; a function that no text spelled has none.
        ports: where each parameter and each returned name stands, as `(name, place)`.
        undefined: returned names that no statement defines; only a tolerant parse leaves such.
    """

    graph: Graph
    opset: int
    statements: tuple[Statement, ...] = ()
    ports: tuple[tuple[str, Place], ...] = ()
    undefined: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Module:
    """Functions by name, in the text's order.

    Attributes:
        functions: at least one.
        dialect: of the header; without one, of the latest opset.
        build_info: the header's pairs, or None where the text has none.
    """

    functions: Mapping[str, Function]
    dialect: Dialect
    build_info: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        freeze = object.__setattr__
        freeze(self, "functions", MappingProxyType(dict(self.functions)))
        if self.build_info is not None:
            freeze(self, "build_info", MappingProxyType(dict(self.build_info)))
