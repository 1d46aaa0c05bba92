"""The arguments of one statement, as the row that reads it wants them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

from orion_ane.errors import MilError
from orion_ane.ir.node import Node, Op
from orion_ane.ir.spelling import Literal, MilArgs
from orion_ane.mil.written import DTYPES, Constant, Written
from orion_ane.types import DType

Value: TypeAlias = Node | Constant
Argument: TypeAlias = Value | tuple[Value, ...]


class Arguments(Mapping[str, Node]):
    """Arguments by parameter; as a mapping, those that can be values, made when asked for.

    A literal without a type, as the short form has it, takes the element type of the first
    argument that is a value: a float that of the first float, another number that of the first
    number.
    """

    def __init__(self, op: str, args: dict[str, Argument]) -> None:
        self._op, self._args = op, args
        self._single = {key: v for key, v in args.items() if not isinstance(v, tuple)}

    def __getitem__(self, key: str) -> Node:
        try:
            return self._node(self._single[key])
        except MilError as error:
            what = f"{key}: {error.what}"
            raise MilError(self._op, what, got=error.got, hint=error.hint) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._single)

    def __len__(self) -> int:
        return len(self._single)

    def __contains__(self, key: object) -> bool:
        return key in self._single

    def for_reader(self, opset: int, results: int) -> MilArgs:
        """What `Op.read` takes."""
        literals: dict[str, Literal] = {}
        for key, value in self._single.items():
            if isinstance(value, Constant):
                typed = self._single[key] = self._suited(value) if value.has_floats else value
                literal = typed.literal()
                if literal is not None:
                    literals[key] = literal
        tuples = {
            key: tuple(map(self._node, value))
            for key, value in self._args.items()
            if isinstance(value, tuple)
        }
        return MilArgs(
            self._op, nodes=self, literals=literals, tuples=tuples, opset=opset, results=results
        )

    def _node(self, value: Value) -> Node:
        return value if isinstance(value, Node) else self._suited(value).node

    def _suited(self, value: Constant) -> Constant:
        if value.dtype is not None:
            return value
        return value.of_type(self._float if value.has_floats else self._number)

    @cached_property
    def _dtypes(self) -> tuple[DType, ...]:
        """Element types of the arguments that have one, constants last."""
        flat: list[Value] = []
        for arg in self._args.values():
            flat.extend(arg if isinstance(arg, tuple) else (arg,))
        nodes = [value.type.dtype for value in flat if isinstance(value, Node)]
        words = [value.dtype for value in flat if isinstance(value, Constant)]
        return (*nodes, *(DTYPES[word] for word in words if word in DTYPES))

    @cached_property
    def _float(self) -> DType | None:
        return next((dtype for dtype in self._dtypes if dtype.is_float), None)

    @cached_property
    def _number(self) -> DType | None:
        return next((dtype for dtype in self._dtypes if dtype is not DType.BOOL), None)


def call(op: str, args: dict[str, Argument], opset: int, results: int) -> tuple[Node, ...]:
    """The nodes that a statement spells, read by the row that has the MIL op.

    Raises:
        MilError: no row has it, or the row does not take these arguments.
        ShapeError: nor these types.
    """
    if op not in Op.readers:
        raise MilError("mil", "no such op", got=op)
    given = Arguments(op, args).for_reader(opset, results)
    found = Op.readers[op](given)
    if given.leftover:
        raise MilError(op, "unknown parameter", got=", ".join(given.leftover))
    return found if isinstance(found, tuple) else (found,)


def want_types(op: str, results: Collection[Written], found: tuple[Value, ...]) -> None:
    """Refuse values that are not as many, or not of the types, as the statement declares."""
    if len(found) != len(results):
        raise MilError(op, "wrong number of results", got=len(results), want=len(found))
    for of, value in zip(results, found, strict=True):
        if isinstance(value, Node) and of != (value.type.dtype.value, value.type.shape):
            raise MilError(op, "result has another type", got=of, want=value.type)
