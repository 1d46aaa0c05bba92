"""Spoilt: a value as a faulty unit leaves it, a function of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from orion_ane.errors import MilError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs
from orion_ane.types import Array, TensorType


@dataclass(frozen=True)
class Spoilt(Op):
    """What `how` makes of the operands; of the first one's type.  No text spells it."""

    name = "spoilt"
    how: Callable[..., Array]

    def infer(self, args: Types) -> TensorType:
        """The first operand's type."""
        return args[0]

    def eval(self, args: Arrays) -> Array:
        """What comes instead of the first operand."""
        with np.errstate(all="ignore"):
            return np.asarray(self.how(*args), args[0].dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        """No gradient: it is a fault."""
        return (None,) * len(y.args)

    def mil(self) -> NoReturn:
        """It is not written.

        Raises:
            MilError: always.
        """
        raise MilError(self.name, "is not written: it is a fault of a device")

    @classmethod
    def read(cls, args: MilArgs) -> NoReturn:
        """No statement asks for it.

        Raises:
            MilError: always.
        """
        raise MilError(args.op, "a fault is not read as a statement")


def spoilt(how: Callable[..., Array], value: Node, *others: Node) -> Node:
    """A value after a fault."""
    return Node(Spoilt(how), (value, *others))
