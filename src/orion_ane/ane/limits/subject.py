"""What a limit is checked on: one function of a text, its ports, statements and blob files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from orion_ane.ir.node import Node
from orion_ane.ir.spelling import Literal
from orion_ane.mil.arguments import Argument
from orion_ane.mil.dialect import Dialect
from orion_ane.mil.module import Function, Place, Statement
from orion_ane.mil.program import Buffer
from orion_ane.mil.written import DTYPES, Constant
from orion_ane.ops.leaf import BlobRef, Weight
from orion_ane.types import TensorType

Ports: TypeAlias = tuple[tuple[str, TensorType], ...]


@dataclass(frozen=True)
class Finding:
    """One place where a limit is broken.

    Attributes:
        where: a statement or a port, as the text names it.
        message: what is wrong there.
        hint: the way out; empty where there is none.
        place: where it stands.
    """

    where: str
    message: str
    hint: str
    place: Place | None


@dataclass(frozen=True, eq=False)
class Subject:
    """A function under check.

    Attributes:
        function: from a tolerant parse.
        dialect: of its module.
        functions: how many the module has.
        files: the blob files by path, or None where only the text is known.
    """

    function: Function
    dialect: Dialect
    functions: int = 1
    files: Mapping[str, Buffer] | None = None

    @property
    def statements(self) -> tuple[Statement, ...]:
        """In the text's order."""
        return self.function.statements

    @cached_property
    def inputs(self) -> Ports:
        """Names and types, as declared."""
        return tuple((name, node.type) for name, node in self.function.graph.inputs.items())

    @cached_property
    def outputs(self) -> Ports:
        """Names and types, as declared."""
        return tuple((name, node.type) for name, node in self.function.graph.outputs.items())

    @cached_property
    def _by_op(self) -> Mapping[str, list[Statement]]:
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            found.setdefault(statement.op, []).append(statement)
        return found

    @cached_property
    def _makers(self) -> Mapping[int, Statement]:
        return {id(node): s for s in self.statements for node in s.nodes}

    @cached_property
    def _places(self) -> tuple[Mapping[str, Place], Mapping[str, Place]]:
        count = len(self.function.graph.inputs)
        ports = self.function.ports
        return dict(ports[:count]), dict(ports[count:])

    @cached_property
    def weights(self) -> tuple[tuple[Statement, Weight, BlobRef], ...]:
        """Every reference into a blob file, with the statement that makes it."""
        found = []
        for statement in self.statements:
            args = () if statement.op == "const" else flat(statement.args)
            for node in (*statement.nodes, *args):
                is_own = node in statement.nodes or self.maker(node) is None
                if isinstance(node, Node) and isinstance(node.op, Weight) and node.op.at and is_own:
                    found.append((statement, node.op, node.op.at))
        return tuple(found)

    def calls(self, *ops: str) -> Iterator[Statement]:
        """The statements of some MIL ops."""
        for op in ops:
            yield from self._by_op.get(op, ())

    def maker(self, value: object) -> Statement | None:
        """The statement that defines a value; None for an input or what was written in place."""
        return self._makers.get(id(value))

    def op_of(self, value: object) -> str:
        """The MIL op that makes a value; empty where no statement does."""
        statement = self.maker(value)
        return statement.op if statement else ""

    def at(self, statement: Statement, message: str, hint: str = "") -> Finding:
        """A finding at a statement."""
        where = f"{statement.op or 'statement'} {', '.join(statement.results[:4])}"
        return Finding(where, message, hint, statement.place)

    def at_input(self, name: str, message: str, hint: str = "") -> Finding:
        """A finding at an input."""
        return Finding(f"input {name}", message, hint, self._places[0].get(name))

    def at_output(self, name: str, message: str, hint: str = "") -> Finding:
        """A finding at an output."""
        return Finding(f"output {name}", message, hint, self._places[1].get(name))


def flat(args: Mapping[str, Argument]) -> tuple[Node | Constant, ...]:
    """All values among arguments, those of tuples too."""
    groups = (arg if isinstance(arg, tuple) else (arg,) for arg in args.values())
    return tuple(value for group in groups for value in group)


def literal(statement: Statement, key: str) -> Literal | None:
    """A parameter that the text itself holds, or None."""
    value = statement.args.get(key)
    return value.literal() if isinstance(value, Constant) else None


def is_scalar(value: object) -> bool:
    """Whether an argument is a constant of one element."""
    return isinstance(value, Constant) and len(value.elements) == 1


def type_of(value: object) -> TensorType | None:
    """The type of an argument, or None where it is none of a value."""
    if isinstance(value, Node):
        return value.type
    if isinstance(value, Constant) and value.dtype in DTYPES and 0 not in value.shape:
        return TensorType(DTYPES[value.dtype], value.shape)
    return None
