"""Op (a row of the table) and Node (a use of it), which knows its type from birth."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.types import Array, TensorType

Types: TypeAlias = tuple[TensorType, ...]
Arrays: TypeAlias = tuple[Array, ...]
Reader: TypeAlias = "Callable[[MilArgs], Node | tuple[Node, ...]]"


class Row(ABCMeta):
    """Classes whose instances are told by inheritance alone: five times as fast as an ABC's."""

    __instancecheck__ = type.__instancecheck__


class Op(metaclass=Row):
    """A row of the op table: type rule, meaning, gradient and spelling of one operation.

    Subclasses are frozen dataclasses whose fields are the op's parameters, and name themselves:
    `class Softmax(Op, name="softmax")`.  A subclass without a name is a shared base.
    """

    table: ClassVar[dict[str, type[Op]]] = {}
    readers: ClassVar[dict[str, Reader]] = {}
    name: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str = "", mil: str | None = None, **kwargs: Any) -> None:
        """Enter the row `name` in the table, read from the MIL op `mil` (by default `name`).

        `mil=""` is a row that no statement of its own spells (a leaf, or `neg`).
        """
        super().__init_subclass__(**kwargs)
        if not name:
            return
        cls.name = name
        spelling = name if mil is None else mil
        if name in Op.table or spelling in Op.readers:
            raise TypeError(f"op table: {name!r} ({spelling!r} in MIL) is claimed twice")
        Op.table[name] = cls
        if spelling:
            Op.readers[spelling] = cls.read

    @abstractmethod
    def infer(self, args: Types) -> TensorType:
        """The type of the result.

        Raises:
            ShapeError: the op does not take these operands.
        """

    @abstractmethod
    def eval(self, args: Arrays) -> Array:
        """The meaning, in numpy, in whatever float type the operands come (float64 included).

        Rounding to the declared type is the caller's: see `orion_ane.ops.evaluate`.
        """

    @abstractmethod
    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        """The cotangent of each operand of `y`, given `dy`; None where there is none.

        It is asked of float results alone: integers and bools have no cotangent to give.
        """

    @abstractmethod
    def mil(self) -> MilCall:
        """The spelling, every parameter that has a concrete default written out."""

    @classmethod
    @abstractmethod
    def read(cls, args: MilArgs) -> Node | tuple[Node, ...]:
        """The node that a parsed statement spells; one for each result, where it has several.

        Raises:
            MilError: an argument is missing or is not of the kind that the row takes.
        """


@dataclass(frozen=True, eq=False)
class Node:
    """A use of an op on operands; frozen, compared by identity, one value each.

    Raises:
        ShapeError: the op does not take these operands.
    """

    op: Op
    args: tuple[Node, ...] = ()
    type: TensorType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.op.infer(tuple(arg.type for arg in self.args)))

    def on(self, args: tuple[Node, ...]) -> Node:
        """The same op on other operands; where they have the old types, nothing is inferred again.

        Raises:
            ShapeError: the op does not take these operands.
        """
        if len(args) != len(self.args) or any(
            new.type is not old.type and new.type != old.type
            for new, old in zip(args, self.args, strict=True)
        ):
            return Node(self.op, args)
        node, freeze = object.__new__(Node), object.__setattr__
        freeze(node, "op", self.op)
        freeze(node, "args", args)
        freeze(node, "type", self.type)
        return node

    def __repr__(self) -> str:
        return f"{self.type} {self.op}({', '.join(str(arg.type) for arg in self.args)})"

    def __add__(self, other: Node) -> Node:
        return _binary("add", self, other)

    def __sub__(self, other: Node) -> Node:
        return _binary("sub", self, other)

    def __mul__(self, other: Node) -> Node:
        return _binary("mul", self, other)

    def __truediv__(self, other: Node) -> Node:
        return _binary("real_div", self, other)

    def __neg__(self) -> Node:
        return Node(Op.table["neg"](), (self,))


def _binary(name: str, x: Node, y: Node) -> Node:
    return Node(Op.table[name](), (x, y))
