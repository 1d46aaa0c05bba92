"""Graph to MIL text: the device form, and the short form that people read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from orion_ane.errors import MilError
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ir.spelling import Literal
from orion_ane.mil.dialect import IOS18, Dialect
from orion_ane.mil.lex import MAX_TEXT, quoted
from orion_ane.mil.module import Module
from orion_ane.mil.names import is_identifier, symbols
from orion_ane.mil.program import Port
from orion_ane.mil.spell import OWN_TYPE, Payload, device_text, payload, short_text
from orion_ane.ops.leaf import Const, Input, Weight
from orion_ane.ops.shape import identity
from orion_ane.types import DType, TensorType

Argument: TypeAlias = Node | Payload | list[Node]


@dataclass(frozen=True)
class Emitted:
    """A text, and the map between the user's names and its identifiers."""

    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def emit(graph: Graph, *, dialect: Dialect = IOS18, short: bool = False) -> Emitted:
    """The text of a graph as the function `main`; equal graphs give equal texts.

    In device form every parameter is a named constant, each constant is written once, and the
    header is the one that devices are known to take.  The short form has literals in line.

    Raises:
        MilError: a weight is not placed in a file, or a parameter does not fit its type.
    """
    body = _body(graph, dialect, dialect.opset, short=short)
    text = _program(body.function("main"), dialect, dict(dialect.build_info), short=short)
    return Emitted(text, body.inputs, body.outputs)


def emit_module(module: Module, *, short: bool = False) -> str:
    """The text of several functions, under the header that the module has.

    Raises:
        MilError: as `emit`; or a function's name is no identifier.
    """
    lines: list[str] = []
    for name, function in module.functions.items():
        if not is_identifier(name):
            raise MilError("mil", "not a function's name", got=name, want="an identifier")
        lines += _body(function.graph, module.dialect, function.opset, short=short).function(name)
    return _program(lines, module.dialect, module.build_info, short=short)


def returned(graph: Graph) -> Graph:
    """The graph whose outputs are each made by an op of their own; `graph` where they are.

    An output that is a leaf, or a node that another output is already, becomes its `identity`.
    """
    outputs: dict[str, Node] = {}
    seen: set[int] = set()
    for name, node in graph.outputs.items():
        is_own = node.args and id(node) not in seen
        seen.add(id(node))
        outputs[name] = node if is_own else identity(node)
    if all(outputs[name] is node for name, node in graph.outputs.items()):
        return graph
    return Graph(graph.inputs, outputs)


def _program(
    lines: list[str], dialect: Dialect, build_info: Mapping[str, str] | None, *, short: bool
) -> str:
    if short:
        return _checked("\n".join([*lines, ""]))
    head = [f"program({dialect.version})"]
    if build_info is not None:
        text = dialect.scalar("string")
        pairs = ", ".join(f"{{{quoted(key)}, {quoted(v)}}}" for key, v in build_info.items())
        head.append(f"[buildInfo = dict<{text}, {text}>({{{pairs}}})]")
    return _checked("\n".join([*head, "{", *(f"    {line}" for line in lines), "}", ""]))


def _checked(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise MilError("mil", "text too long", got=len(text), want=f"at most {MAX_TEXT}")
    return text


def _body(graph: Graph, dialect: Dialect, opset: int, *, short: bool) -> _Body:
    return (_ShortBody if short else _Body)(returned(graph), dialect, opset)


class _Body:
    """A function in the making: the names given so far, and the statements."""

    is_short = False

    def __init__(self, graph: Graph, dialect: Dialect, opset: int) -> None:
        self.graph, self.dialect, self.opset = graph, dialect, opset
        weights = tuple(dict.fromkeys(n.op for n in graph.nodes if isinstance(n.op, Weight)))
        labels = (weight.label for weight in weights)
        found = symbols([*graph.inputs, *graph.outputs, *labels])
        ins, outs = len(graph.inputs), len(graph.inputs) + len(graph.outputs)
        self.inputs = _ports(graph.inputs, found[:ins])
        self.outputs = _ports(graph.outputs, found[ins:outs])
        self.weights = dict(zip(weights, found[outs:], strict=True))
        taken = set(found)
        self.values, self.constants = _numbered("v", taken), _numbered("c", taken)
        self.symbols = {id(graph.inputs[port.name]): port.symbol for port in self.inputs}
        self.ends = {id(graph.outputs[port.name]): port.symbol for port in self.outputs}
        self.written: dict[Payload, str] = {}
        self.placed: set[str] = set()
        self.name_type = dialect.scalar("string")
        self.params: dict[tuple[str, str, DType | None], Payload] = {}
        self.types: dict[TensorType, str] = {}
        self.lines: list[str] = []

    def function(self, name: str) -> list[str]:
        """The lines of the function."""
        for node in self.graph.nodes:
            if isinstance(node.op, Weight):
                self._weight(node)
            elif not isinstance(node.op, Input | Const) and id(node) not in self.symbols:
                self._statement(node)
        params = ", ".join(f"{self._type(port.type)} {port.symbol}" for port in self.inputs)
        results = ", ".join(port.symbol for port in self.outputs)
        head = f"func {name}<ios{self.opset}>({params}) {{"
        return [head, *(f"    {line}" for line in self.lines), f"}} -> ({results});"]

    def _statement(self, node: Node) -> None:
        call = node.op.mil()
        first = node.args[0].type if node.args else None
        args: dict[str, Argument]
        if len(call.operands) == 1 and call.operands[0].endswith("*"):
            args = {call.operands[0][:-1]: list(node.args)}
        else:
            args = dict(zip(call.operands, node.args, strict=True))
        for key, literal in call.consts.items():
            args[key] = self._param(call.op, key, literal, first)
        text = self._arguments(dict(sorted(args.items())))
        results = []
        unwritten = (n for n in self.graph.nodes if id(n) not in self.symbols)
        for made in call.made(node, unwritten):
            self.symbols[id(made)] = self.ends.get(id(made)) or next(self.values)
            results.append(f"{self._type(made.type)} {self.symbols[id(made)]}")
        self._line(", ".join(results), f"{call.op}({text})")

    def _param(self, op: str, key: str, literal: Literal, first: TensorType | None) -> Payload:
        """`payload`, remembered: a program has few parameters, many times over."""
        known = (key if key in OWN_TYPE else "", repr(literal), first.dtype if first else None)
        if known not in self.params:
            self.params[known] = payload(op, key, literal, first, self.opset)
        return self.params[known]

    def _arguments(self, args: Mapping[str, Argument]) -> str:
        return ", ".join(f"{key} = {self._argument(arg)}" for key, arg in args.items())

    def _argument(self, arg: Argument) -> str:
        if isinstance(arg, list):
            return f"({', '.join(map(self._argument, arg))})"
        if not isinstance(arg, Node):
            return self._constant(arg)
        return self._constant(arg.op) if isinstance(arg.op, Const) else self.symbols[id(arg)]

    def _constant(self, constant: Payload) -> str:
        """The name of a constant, written when it is first used."""
        if constant not in self.written:
            of, value = device_text(constant, self.dialect)
            self.written[constant] = symbol = next(self.constants)
            self._line(f"{of} {symbol}", "const()", f"val = {value}")
        return self.written[constant]

    def _weight(self, node: Node) -> None:
        weight = node.op
        assert isinstance(weight, Weight)
        symbol = self.symbols[id(node)] = self.weights[weight]
        if symbol in self.placed:
            return
        self.placed.add(symbol)
        if weight.at is None:
            hint = "give it its place first: orion_ane.mil.place"
            raise MilError(f"weight {weight.label}", "is in no file", hint=hint)
        _, path = device_text(weight.at.path, self.dialect)
        offset = f"{self.dialect.scalar('uint64')}({weight.at.offset})"
        of = self._type(weight.of)
        value = f"{of}(BLOBFILE(path = {path}, offset = {offset}))"
        self._line(f"{of} {symbol}", "const()", f"val = {value}")

    def _line(self, results: str, call: str, attribute: str = "") -> None:
        name = f'name = {self.name_type}("{results.rpartition(" ")[2]}")'
        bracket = f"{name}, {attribute}" if attribute else name
        self.lines.append(f"{results} = {call}[{bracket}];")

    def _type(self, of: TensorType) -> str:
        if of not in self.types:
            self.types[of] = self.dialect.type(of, short=self.is_short)
        return self.types[of]


class _ShortBody(_Body):
    """The short form: constants in line, no names, no spaces but after a comma."""

    is_short = True

    def __init__(self, graph: Graph, dialect: Dialect, opset: int) -> None:
        super().__init__(graph, dialect, opset)
        self.texts: dict[tuple[Payload, bool], str] = {}

    def _arguments(self, args: Mapping[str, Argument]) -> str:
        return ", ".join(
            f"{key}={text}" for key, text in zip(args, self._inline(args), strict=True)
        )

    def _inline(self, args: Mapping[str, Argument]) -> Iterator[str]:
        """Each argument; a constant shows its type where the parser could not tell it."""
        flat = [node for arg in args.values() for node in (arg if isinstance(arg, list) else [arg])]
        dtypes = [n.type.dtype for n in flat if isinstance(n, Node) and not isinstance(n.op, Const)]
        number = next((dtype for dtype in dtypes if dtype is not DType.BOOL), None)
        floats = next((dtype for dtype in dtypes if dtype.is_float), None)

        def text(arg: Argument) -> str:
            if isinstance(arg, list):
                return f"({', '.join(map(text, arg))})"
            if isinstance(arg, Node) and not isinstance(arg.op, Const):
                return self.symbols[id(arg)]
            constant = arg.op if isinstance(arg, Node) else arg
            assert isinstance(constant, Const | str | tuple)
            dtype = constant.of.dtype if isinstance(constant, Const) else DType.BOOL
            told = floats if dtype.is_float else number if isinstance(arg, Node) else dtype
            key = (constant, dtype in (told, DType.BOOL))
            if key not in self.texts:
                self.texts[key] = short_text(constant, typed=not key[1])
            return self.texts[key]

        return map(text, args.values())

    def _line(self, results: str, call: str, attribute: str = "") -> None:
        bracket = f"[{attribute}]" if attribute else ""
        self.lines.append(f"{results} = {call}{bracket};")


def _ports(nodes: Mapping[str, Node], found: tuple[str, ...]) -> tuple[Port, ...]:
    named = zip(nodes.items(), found, strict=True)
    return tuple(Port(name, symbol, node.type) for (name, node), symbol in named)


def _numbered(letter: str, taken: set[str]) -> Iterator[str]:
    """`v0`, `v1`, … without those that are a port's or a weight's."""
    return (name for name in (f"{letter}{n}" for n in count()) if name not in taken)
