"""One of two programs that are compared: its values, where they stand, and its weights' bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orion_ane.ir.node import Node
from orion_ane.ir.spelling import MilCall
from orion_ane.mil.module import Function, Place, Statement
from orion_ane.mil.opaque import Opaque
from orion_ane.mil.parse import parse
from orion_ane.mil.program import Buffer, Port, Program
from orion_ane.mil.stored import stored
from orion_ane.mil.written import Constant
from orion_ane.ops.leaf import Const, Input, Weight
from orion_ane.types import Array

_NUMBER = re.compile(r"^[ab][0-9]{2,}_(?=.)")


@dataclass(frozen=True)
class Spot:
    """A place in a text, and what stands there.

    Attributes:
        text: the op and its name in the text, as `mul v12`; `none` where the side has nothing.
        line: from 1, or None.
        column: likewise.
    """

    text: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.text if self.line is None else f"{self.line}:{self.column}: {self.text}"


class PortNode(NamedTuple):
    """A port: its name in the text, and its value."""

    symbol: str
    node: Node


class Side:
    """A function of one of the programs.

    Attributes:
        function: as it was read; what no row of the op table reads is opaque.
        graph: what it computes.
        inputs: by the user's names, where the program says them.
        outputs: likewise.
    """

    def __init__(
        self, function: Function, files: Mapping[str, Buffer] | None, ports: tuple[Port, ...]
    ) -> None:
        self.function, self.graph = function, function.graph
        self._files = files
        self._ports = {port.symbol: port for port in ports}
        self.inputs = self._named(self.graph.inputs)
        self.outputs = self._named(self.graph.outputs)
        self._made: dict[Node, tuple[Statement, str]] = {}
        for statement in function.statements:
            for node, name in zip(statement.nodes, statement.results, strict=False):
                self._made.setdefault(node, (statement, name))
        self._places = dict(function.ports[: len(self.graph.inputs)])
        self._ends = dict(function.ports[len(self.graph.inputs) :])

    def _named(self, nodes: Mapping[str, Node]) -> dict[str, PortNode]:
        """Ports by the names that users feed them by, else by those of the text.

        The number that orders a port on a device is left out, where the rest tells them apart.
        """
        plain = {symbol: _NUMBER.sub("", symbol) for symbol in nodes}
        if len(set(plain.values())) < len(plain):
            plain = {symbol: symbol for symbol in nodes}
        ports = ((self._ports.get(symbol), symbol, node) for symbol, node in nodes.items())
        return {port.name if port else plain[s]: PortNode(s, node) for port, s, node in ports}

    def spot(self, node: Node, user: Node) -> Spot:
        """Where a value is made; of a constant, where it is used."""
        if isinstance(node.op, Input):
            return self.port_spot(node.op.label)
        made = self._made.get(node) or self._made.get(user)
        if made is None:
            return Spot(described(node))
        statement, name = made
        return _spot(f"{statement.op} {name}", statement.place)

    def port_spot(self, symbol: str) -> Spot:
        """Where a port is declared."""
        place = self._places.get(symbol) or self._ends.get(symbol)
        return Spot(symbol) if place is None else _spot(symbol, place)

    def port_types(self, port: PortNode) -> str:
        """The types of a port: of the surface, and of what a user feeds or gets."""
        known, of = self._ports.get(port.symbol), port.node.type
        return str(of) if known is None or known.of == of else f"{of} for {known.of}"

    def call(self, node: Node) -> MilCall:
        """The spelling of an op; of one that is not known, what its statement gives."""
        if not isinstance(node.op, Opaque):
            return node.op.mil()
        statement, _ = self._made[node]
        constants = {k: v for k, v in statement.args.items() if isinstance(v, Constant)}
        literals = {key: value.elements for key, value in constants.items()}
        return MilCall(statement.op, tuple(statement.args), literals)

    def key(self, node: Node) -> object:
        """What makes the op of a node equal to another."""
        if not isinstance(node.op, Opaque):
            return node.op
        call, (statement, name) = self.call(node), self._made[node]
        return (call.op, tuple(sorted(call.consts.items())), statement.results.index(name))

    def reference(self, node: Node) -> object:
        """Which weight of its program this is."""
        assert isinstance(node.op, Weight)
        return node.op.at or node.op.label

    def contents(self, node: Node) -> Array | None:
        """A weight's elements, or None where the program came without its files.

        Raises:
            MilError: a file is missing or damaged, or the blob is of another type.
        """
        assert isinstance(node.op, Weight)
        if self._files is None or node.op.at is None:
            return None
        return stored(node.op, self._files)

    def read_weights(self) -> None:
        """Look at the contents of every weight, where the program came with its files.

        Raises:
            MilError: as `contents`.
        """
        for node in self.graph.nodes:
            if isinstance(node.op, Weight):
                self.contents(node)


def sides_of(program: Program | str) -> dict[str, Side]:
    """The functions of a program or a text."""
    if isinstance(program, str):
        functions = parse(program, tolerant=True).functions
        return {name: Side(function, None, ()) for name, function in functions.items()}
    functions = parse(program.text, tolerant=True).functions
    ports = (*program.inputs, *program.outputs)
    return {name: Side(function, program.weights, ports) for name, function in functions.items()}


def described(node: Node) -> str:
    """A value in a few words."""
    match node.op:
        case Input(label=label, of=of):
            return f"input {label} {of}"
        case Weight(label=label, of=of):
            return f"weight {label} {of}"
        case Const(of=of) as constant:
            shown = ", ".join(map(str, constant.value.ravel()[:4].tolist()))
            return f"constant {of} {shown}{' …' if of.elements > 4 else ''}"
        case Opaque(spelling=name, of=of):
            return f"{name} {of}"
    return f"{node.op.name} {node.type}"


def _spot(text: str, place: Place) -> Spot:
    return Spot(text, place.line, place.column)
