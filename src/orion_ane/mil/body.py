"""A function of a MIL text: parameters, statements, results."""

from __future__ import annotations

import re

import orion_ane.ops  # noqa: F401 (fills the table of readers)
from orion_ane.errors import MilError, OrionError
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node, Op
from orion_ane.mil.arguments import Argument, Value, call, want_types
from orion_ane.mil.dialect import DIALECTS, OLD
from orion_ane.mil.lex import Tokens, shortened
from orion_ane.mil.module import Function, Place, Statement
from orion_ane.mil.names import TYPE_WORDS
from orion_ane.mil.opaque import Opaque
from orion_ane.mil.written import TRUTHS, Constant, Written, read_constant, read_literal, read_type
from orion_ane.ops.leaf import Input, Weight

MAX_STATEMENTS = 500_000

# The bracket that nearly all statements end with, in one piece: it halves the time of a parse.
_NAME_ONLY = re.compile(r'\[name = (?:string|tensor<string, \[\]>)\("[^"\\\n]{0,1000}"\)\]')
_FLOATS = frozenset({"inf", "nan"})


def read_function(tokens: Tokens, version: str, *, tolerant: bool) -> Function:
    """What follows `func name`, under a header of `version`, which is empty where there is none.

    A tolerant reading keeps what the rows of the op table refuse; see `parse`.

    Raises:
        MilError: with line and column.
    """
    tokens.expect("<")
    at = tokens.match
    dialect = DIALECTS.get(tokens.word("an opset"))
    if dialect is None or (version == OLD and dialect.version != OLD):
        want = [name for name, d in DIALECTS.items() if version != OLD or d.version == OLD]
        raise tokens.fail("opset not supported", at=at, got=shortened(at[1]), want=want)
    tokens.expect(">")
    body = _Body(tokens, dialect.opset, tolerant=tolerant)
    body.read_inputs()
    if tokens.next == "[":
        raise tokens.fail("attributes of a function not supported")
    tokens.expect("{")
    count = 0
    while tokens.next != "}":
        count += 1
        if count > MAX_STATEMENTS:
            raise tokens.fail("too many statements", want=f"at most {MAX_STATEMENTS}")
        body.read_statement()
    graph = body.read_outputs()
    statements, ports = tuple(body.statements), tuple(body.ports)
    return Function(graph, dialect.opset, statements, ports, tuple(body.undefined))


class _Body:
    """The values that a function has defined so far, by name."""

    def __init__(self, tokens: Tokens, opset: int, *, tolerant: bool) -> None:
        self.tokens, self.opset, self.is_tolerant = tokens, opset, tolerant
        self.values: dict[str, Value] = {}
        self.inputs: dict[str, Node] = {}
        self.statements: list[Statement] = []
        self.ports: list[tuple[str, Place]] = []
        self.undefined: list[str] = []
        self.literals = 0  # values read so far that were written in place

    def read_inputs(self) -> None:
        """`(T a, T b)`."""
        tokens = self.tokens
        tokens.expect("(")
        while tokens.next != ")":
            if self.inputs:
                tokens.expect(",")
            at = tokens.match
            written = read_type(tokens)
            name = self._new_name()
            try:
                self.inputs[name] = self.values[name] = Node(Input(name, written.tensor()))
            except OrionError as error:
                raise tokens.located(error, at) from error
            self.ports.append((name, self._place(at)))
        tokens.advance()

    def read_outputs(self) -> Graph:
        """`} -> (y, z);` and the graph that it ends."""
        tokens = self.tokens
        tokens.expect("}")
        tokens.expect("->")
        start = tokens.match
        tokens.expect("(")
        outputs: dict[str, Node] = {}
        missing: MilError | None = None
        while tokens.next != ")":
            if outputs or self.undefined:
                tokens.expect(",")
            at = tokens.match
            name = tokens.word()
            self.ports.append((name, self._place(at)))
            if name not in self.values:
                missing = tokens.fail("no such value", at=at, got=name)
                if not self.is_tolerant:
                    raise missing
                self.undefined.append(name)
                continue
            if name in outputs:
                raise tokens.fail("output is given twice", at=at, got=name)
            value = self.values[name]
            try:
                outputs[name] = value if isinstance(value, Node) else value.node
            except OrionError as error:
                raise tokens.located(error, at) from error
        tokens.advance()
        tokens.expect(";")
        if missing is not None and not outputs:
            raise missing
        try:
            return Graph(self.inputs, outputs)
        except OrionError as error:
            raise tokens.located(error, start) from error

    def read_statement(self) -> None:
        """`T y = op(k = v, …)[name = string("y")];`, with one result or several."""
        tokens = self.tokens
        at = tokens.match
        op, ended = "", False
        args: dict[str, Argument] = {}
        inline: list[str] = []
        problem: MilError | None = None
        found: tuple[Value, ...]
        try:
            results = self._read_results()
        except OrionError as error:
            raise tokens.located(error, at) from error
        try:
            op = self._read_op()
            args = self._read_call(op, next(iter(results)), inline)
            ended = True
            is_const = op == "const"
            found = _const(args, results) if is_const else call(op, args, self.opset, len(results))
            want_types(op, results.values(), found)
        except OrionError as error:
            problem = tokens.located(error, at)
            if not self.is_tolerant:
                raise problem from error
            found = self._passed_over(op, args, results, problem, ended=ended)
        self.values.update(zip(results, found, strict=True))
        nodes = tuple([value for value in found if isinstance(value, Node)])
        place = Place(tokens.text, at.start(1))
        self.statements.append(
            Statement(op, tuple(results), args, tuple(inline), nodes, place, problem)
        )

    def _read_call(self, op: str, label: str, inline: list[str]) -> dict[str, Argument]:
        """`(k = v, …)[name = string("y")];` and, in `inline`, the parameters written in place."""
        tokens = self.tokens
        args = self._read_arguments("(", ")", label, inline)
        if (usual := _NAME_ONLY.match(tokens.text, tokens.match.start(1))) is not None:
            tokens.go_to(usual.end())
        elif tokens.next == "[":
            args = _merged(op, args, self._read_arguments("[", "]", label, inline))
        tokens.expect(";")
        return args

    def _passed_over(
        self,
        op: str,
        args: dict[str, Argument],
        results: dict[str, Written],
        problem: MilError,
        *,
        ended: bool,
    ) -> tuple[Node, ...]:
        """Values of the declared types for a statement that cannot be read, to its end.

        Raises:
            MilError: `problem`, where there is no end or no such type of a value.
        """
        tokens = self.tokens
        while not ended:
            if not tokens.next:
                raise problem
            ended = tokens.next == ";"
            tokens.advance()
        flat = [v for arg in args.values() for v in (arg if isinstance(arg, tuple) else (arg,))]
        operands = tuple(value for value in flat if isinstance(value, Node))
        try:
            return tuple(Node(Opaque(op, of.tensor()), operands) for of in results.values())
        except OrionError:
            raise problem from None

    def _place(self, at: re.Match[str]) -> Place:
        return Place(self.tokens.text, at.start(1))

    def _read_results(self) -> dict[str, Written]:
        """`T a, T b =`, the names still undefined."""
        tokens = self.tokens
        results: dict[str, Written] = {}
        while not results or tokens.accept(","):
            at = tokens.match
            of = _read_result_type(tokens)
            name = self._new_name()
            if name in results:
                raise tokens.fail("name is defined twice", at=at, got=name)
            results[name] = of
        tokens.expect("=")
        return results

    def _read_op(self) -> str:
        tokens = self.tokens
        at = tokens.match
        op = tokens.word("an op")
        if op != "const" and op not in Op.readers and not self.is_tolerant:
            raise tokens.fail("no such op", at=at, got=op)
        return op

    def _new_name(self) -> str:
        tokens = self.tokens
        at = tokens.match
        name = tokens.word()
        if name in TYPE_WORDS or name in TRUTHS:
            raise tokens.fail("reserved word", at=at, got=name, want="a name")
        if name in self.values:
            raise tokens.fail("name is defined twice", at=at, got=name)
        return name

    def _read_arguments(
        self, start: str, end: str, label: str, inline: list[str]
    ) -> dict[str, Argument]:
        """`k = v, …` between brackets; `label` is how a weight among them is called."""
        tokens = self.tokens
        tokens.expect(start)
        found: dict[str, Argument] = {}
        while tokens.next != end:
            if found:
                tokens.expect(",")
            at = tokens.match
            key = tokens.word("a parameter")
            if key in found:
                raise tokens.fail("parameter is given twice", at=at, got=key)
            tokens.expect("=")
            before = self.literals
            if tokens.next == "(":
                found[key] = self._read_tuple(label)
            else:
                found[key] = self._read_value(label if key == "val" else f"{label}_{key}")
            if self.literals != before and key != "name":
                inline.append(key)
        tokens.advance()
        return found

    def _read_tuple(self, label: str) -> tuple[Value, ...]:
        """`(a, b)`."""
        tokens = self.tokens
        tokens.expect("(")
        found: list[Value] = []
        while tokens.next != ")":
            if found:
                tokens.expect(",")
            found.append(self._read_value(f"{label}_{len(found)}"))
        tokens.advance()
        return tuple(found)

    def _read_value(self, label: str) -> Value:
        """A name, a constant with its type, or a literal."""
        tokens = self.tokens
        token = tokens.next
        known = self.values.get(token)
        if known is not None:
            tokens.advance()
            return known
        self.literals += 1
        if token in TYPE_WORDS:
            return read_constant(tokens, label)
        if tokens.at_name and token not in TRUTHS and token not in _FLOATS:
            raise tokens.fail("no such value", got=shortened(token))
        return read_literal(tokens)


def _read_result_type(tokens: Tokens) -> Written:
    at = tokens.match
    if tokens.at_name and tokens.next not in TYPE_WORDS:
        op = tokens.word()
        if tokens.next == "(":
            raise tokens.fail(f"{op} not supported: it has no result", at=at)
        raise tokens.fail("no such type", at=at, got=op)
    return read_type(tokens)


def _merged(
    op: str, args: dict[str, Argument], attributes: dict[str, Argument]
) -> dict[str, Argument]:
    """The arguments with those that stand in the attribute bracket; the name says nothing."""
    name = attributes.pop("name", None)
    if name is not None and not (isinstance(name, Constant) and name.dtype == "string"):
        raise MilError(op, "name has the wrong type", want="a string")
    if attributes and op != "const" and not op.startswith("constexpr_"):
        raise MilError(op, "unknown attribute", got=", ".join(attributes), want="name")
    twice = args.keys() & attributes.keys()
    if twice:
        raise MilError(op, "parameter is given twice", got=", ".join(sorted(twice)))
    return {**args, **attributes}


def _const(args: dict[str, Argument], results: dict[str, Written]) -> tuple[Value]:
    """The value of `const()[val = …]`."""
    of = next(iter(results.values()))
    if list(args) != ["val"]:
        raise MilError("const", "unknown parameter", got=list(args)[:8], want="val")
    value = args["val"]
    if isinstance(value, Constant):
        if value.dtype is None:
            return (Constant.typed(of, value.shape, value.elements),)
        if (value.dtype, value.shape) != of:
            got = Written(value.dtype, value.shape)
            raise MilError("const", "value has another type", got=got, want=of)
        return (value,)
    if isinstance(value, Node) and isinstance(value.op, Weight):
        return (value,)
    raise MilError("const", "not a constant", want="a literal or a blob reference")
