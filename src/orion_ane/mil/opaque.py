"""Statements that no row reads, kept as nodes of the types that they declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs
from orion_ane.types import TensorType


@dataclass(frozen=True)
class Opaque(Op):
    """A result of a MIL op whose meaning is not known; it has a type and operands, no more."""

    name = "opaque"
    spelling: str
    of: TensorType

    def infer(self, args: Types) -> TensorType:
        """The declared type."""
        return self.of

    def eval(self, args: Arrays) -> NoReturn:
        """It has no meaning.

        Raises:
            ShapeError: always.
        """
        raise ShapeError(self.spelling, "has no meaning here: no row of the op table reads it")

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        """No gradient: it is not known."""
        return (None,) * len(y.args)

    def mil(self) -> NoReturn:
        """It is not written again.

        Raises:
            MilError: always.
        """
        raise MilError(self.spelling, "is not written: no row of the op table reads it")

    @classmethod
    def read(cls, args: MilArgs) -> NoReturn:
        """No statement asks for it.

        Raises:
            MilError: always.
        """
        raise MilError(args.op, "an opaque value is not read as a statement")
