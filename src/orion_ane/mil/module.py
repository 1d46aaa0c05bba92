"""Module: the functions of one MIL text, each with its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orion_ane.ir.graph import Graph
from orion_ane.mil.dialect import Dialect


@dataclass(frozen=True, eq=False)
class Function:
    """A graph under the rules of an opset, 15 to 18."""

    graph: Graph
    opset: int


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
