"""How an op is spelled in MIL, as data: what the emitter writes and what the parser hands back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from orion_ane.errors import MilError

if TYPE_CHECKING:
    from orion_ane.ir.node import Node, Op

Scalar: TypeAlias = bool | int | float | str
Literal: TypeAlias = Scalar | tuple[Scalar, ...]
"""A parameter's value.  bool, int and str print as bool, int32 and string; a float in the float
type of the first operand or, where that does not hold it exactly (only an epsilon), as fp32; a
tuple prints as a rank-1 tensor of its elements."""


@dataclass(frozen=True)
class MilCall:
    """One MIL statement without its result: op name, operand names, constant parameters.

    Attributes:
        op: the MIL op, as `slice_by_index`.
        operands: parameter names of the node's args, in their order.  A single name ending in
            `*`, as `("values*",)`, takes all args as one tuple.
        consts: the other parameters, every one that has a concrete default written out.
        results: where the statement has several, the row of each, this one among them; they
            take the same operands.
    """

    op: str
    operands: tuple[str, ...]
    consts: Mapping[str, Literal] = field(default_factory=dict)
    results: tuple[Op, ...] = ()

    def made(self, node: Node, graph: Iterable[Node]) -> tuple[Node, ...]:
        """What the statement that spells `node` gives: nodes of `graph`, or new ones."""
        found = {n.op: n for n in graph if n.args == node.args} if self.results else {}
        found[node.op] = node
        return tuple(
            found.get(op) or type(node)(op, node.args) for op in self.results or (node.op,)
        )


class MilArgs:
    """The arguments of a parsed statement, taken one by one by the row that reads them.

    `nodes` holds arguments that are values, `tuples` those written `(a, b)`; a constant argument
    is in `nodes` (as a const node) and in `literals`, since only the row knows which it wants.
    Whoever calls `read` then asks `leftover`, so that no parameter is passed over.
    """

    def __init__(
        self,
        op: str,
        *,
        nodes: Mapping[str, Node],
        literals: Mapping[str, Literal],
        tuples: Mapping[str, tuple[Node, ...]],
        opset: int,
        results: int = 1,
    ) -> None:
        self.op = op
        self.opset = opset
        """15 to 18: rules differ (reshape's 0)."""
        self.results = results
        """How many results the statement declares: a row that has several makes no more."""
        self._nodes, self._literals, self._tuples = nodes, literals, tuples
        self._left = {*nodes, *literals, *tuples}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes or name in self._literals or name in self._tuples

    @property
    def leftover(self) -> tuple[str, ...]:
        """Parameters that the row did not take."""
        return tuple(sorted(self._left))

    def node(self, name: str) -> Node:
        """The argument `name` as a value."""
        self._left.discard(name)
        if name in self._nodes:
            return self._nodes[name]
        if name in self:
            raise MilError(self.op, f"{name} has the wrong kind", want="one value")
        raise MilError(self.op, "missing argument", want=name)

    def maybe(self, name: str) -> Node | None:
        """The argument `name` as a value, or None where it is not given."""
        return self.node(name) if name in self else None

    def nodes(self, name: str) -> tuple[Node, ...]:
        """The argument `name`, written as a tuple of values."""
        self._left.discard(name)
        if name in self._tuples:
            return self._tuples[name]
        return (self.node(name),)

    def literal(self, name: str, default: Literal | None = None) -> Literal:
        """The constant parameter `name`; a default of None means that it must be given."""
        self._left.discard(name)
        if name in self._literals:
            return self._literals[name]
        if name in self:
            raise MilError(self.op, "not a constant", got=name, want="a constant parameter")
        if default is None:
            raise MilError(self.op, "missing argument", want=name)
        return default

    def flag(self, name: str, default: bool | None = None) -> bool:
        """The boolean parameter `name`."""
        value = self.literal(name, default)
        if not isinstance(value, bool):
            raise MilError(self.op, f"{name} has the wrong type", got=value, want="a bool")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """The integer parameter `name`."""
        value = self.literal(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise MilError(self.op, f"{name} has the wrong type", got=value, want="an int32")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """The float parameter `name`, exact as written."""
        value = self.literal(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MilError(self.op, f"{name} has the wrong type", got=value, want="a float")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """The string parameter `name`."""
        value = self.literal(name, default)
        if not isinstance(value, str):
            raise MilError(self.op, f"{name} has the wrong type", got=value, want="a string")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The integer list `name`; a lone integer is a list of one."""
        value = self.literal(name, default)
        values = value if isinstance(value, tuple) else (value,)
        found = tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
        if len(found) != len(values):
            raise MilError(self.op, f"{name} has the wrong type", got=value, want="int32 values")
        return found

    def flags(self, name: str, default: tuple[bool, ...] | None = None) -> tuple[bool, ...]:
        """The boolean list `name`."""
        value = self.literal(name, default)
        values = value if isinstance(value, tuple) else (value,)
        found = tuple(v for v in values if isinstance(v, bool))
        if len(found) != len(values):
            raise MilError(self.op, f"{name} has the wrong type", got=value, want="bool values")
        return found
