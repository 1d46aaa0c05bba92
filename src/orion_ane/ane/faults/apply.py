"""misbehave: what a device makes of a text that breaks some of its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from orion_ane.ane.check import broken
from orion_ane.ane.faults.kinds import (
    Args,
    Crashes,
    Fails,
    Fault,
    Misbound,
    Miscomputed,
    Misread,
    Misstrided,
    Refused,
    Unchecked,
    Zeroed,
)
from orion_ane.ane.faults.loud import HINT, INFERENCE, INVALID
from orion_ane.ane.faults.spoilt import spoilt
from orion_ane.ane.faults.surfaces import Side, order
from orion_ane.ane.faults.table import FAULTS
from orion_ane.ane.limits import Finding, Subject
from orion_ane.ane.limits.subject import Ports
from orion_ane.ane.targets import Target
from orion_ane.errors import BackendError, OrionError
from orion_ane.ir import Graph, Node
from orion_ane.mil.arguments import Argument, call
from orion_ane.mil.module import Module, Statement
from orion_ane.mil.program import Buffer
from orion_ane.mil.written import Constant
from orion_ane.ops.leaf import Weight


@dataclass(frozen=True)
class Misbehaviour:
    """A program as a device runs it.

    Attributes:
        graph: what is computed.
        failure: the words with which each run ends; empty where runs end well.
        inputs: how surfaces become values; None where they are what they should be.
        outputs: how values become surfaces; likewise.
        unchecked: weights that are whatever bytes lie there.
    """

    graph: Graph
    failure: str = ""
    inputs: Side | None = None
    outputs: Side | None = None
    unchecked: frozenset[Weight] = frozenset()


def misbehave(module: Module, files: Mapping[str, Buffer], target: Target) -> Misbehaviour:
    """What a device does with a text, which a tolerant parse read, and its blob files.

    Raises:
        BackendError: it refuses the text, in its own words, or its compiler ends.
    """
    subjects = [
        Subject(function, module.dialect, len(module.functions), files)
        for function in module.functions.values()
    ]
    faults = [
        (FAULTS[limit.code], f)
        for s in subjects
        for limit, f in broken(s, target)
        if limit.code in FAULTS
    ]
    _refuse(subjects, [fault for fault, _ in faults])
    names = list(module.functions)
    main = subjects[names.index("main") if "main" in names else 0]
    return _Device(main, faults, target).misbehaviour()


def _refuse(subjects: list[Subject], faults: list[Fault]) -> None:
    """Raise what the compiler says: of a text that is not valid first."""
    words = [fault.words for fault in faults if isinstance(fault, Refused)]
    is_unread = any(s.problem is not None for subject in subjects for s in subject.statements)
    is_undefined = any(subject.function.undefined for subject in subjects)
    if is_unread or is_undefined or INVALID in words:
        raise BackendError("compile", INVALID, hint=HINT)
    if words:
        raise BackendError("compile", words[0], hint=HINT)
    crash = next((fault for fault in faults if isinstance(fault, Crashes)), None)
    if crash is not None:
        raise BackendError("compile", crash.words, hint=HINT)


class _Device:
    """What the faults of one function make of it."""

    def __init__(
        self, subject: Subject, faults: list[tuple[Fault, Finding]], target: Target
    ) -> None:
        self.subject, self.faults, self.behaviour = subject, faults, target.behaviour

    def misbehaviour(self) -> Misbehaviour:
        kinds = [fault for fault, _ in self.faults]
        is_packed = any(isinstance(fault, Misstrided) for fault in kinds)
        failures = [fault.words for fault in kinds if isinstance(fault, Fails)]
        if is_packed and self.behaviour.narrow_rows == "fails":
            failures.append(INFERENCE)
        return Misbehaviour(
            self._graph(),
            failures[0] if failures else "",
            self._side("input", self.subject.inputs, is_packed=is_packed),
            self._side("output", self.subject.outputs, is_packed=is_packed),
            frozenset(self._unchecked()),
        )

    @cached_property
    def _sites(self) -> Mapping[int, list[Fault]]:
        """The faults at each place of the text."""
        found: dict[int, list[Fault]] = {}
        for fault, finding in self.faults:
            if finding.place is not None and fault not in found.get(finding.place.offset, ()):
                found.setdefault(finding.place.offset, []).append(fault)
        return found

    def _faults_at(self, statement: Statement) -> list[Fault]:
        return self._sites.get(statement.place.offset, [])

    def _side(self, name: str, ports: Ports, *, is_packed: bool) -> Side | None:
        is_bound = any(isinstance(f, Misbound) and f.side == name for f, _ in self.faults)
        bound = order(ports, self.behaviour.binding if is_bound else "declared")
        places = {
            port: place.offset
            for port, place in self.subject.function.ports
            if Zeroed() in self._sites.get(place.offset, ())
        }
        zeroed = frozenset(places) & {port for port, _ in ports}
        if bound == tuple(range(len(ports))) and not is_packed and not zeroed:
            return None
        return Side(ports, bound, is_packed, zeroed)

    def _unchecked(self) -> Iterator[Weight]:
        for statement, weight, _ in self.subject.weights:
            if Unchecked() in self._faults_at(statement):
                yield weight

    def _graph(self) -> Graph:
        """The function's graph, with what the faults make of its statements."""
        graph = self.subject.function.graph
        sites = {
            node: statement
            for statement in self.subject.statements
            if any(isinstance(f, Misread | Miscomputed) for f in self._faults_at(statement))
            for node in statement.nodes
        }
        if not sites:
            return graph
        now: dict[Node, Node] = {}
        for node in graph.nodes:
            if node in sites:
                found = self._made(sites[node], now)
                now.update(zip(sites[node].nodes, found, strict=True))
                continue
            args = tuple(now[arg] for arg in node.args)
            now[node] = node if args == node.args else node.on(args)
        return Graph(graph.inputs, {name: now[node] for name, node in graph.outputs.items()})

    def _made(self, statement: Statement, now: Mapping[Node, Node]) -> tuple[Node, ...]:
        """The values of a statement with faults, of what its operands are now."""
        faults = self._faults_at(statement)
        args: Args = {key: _current(value, now) for key, value in statement.args.items()}
        for fault in faults:
            if isinstance(fault, Misread):
                args = fault.change(self.subject, statement, args)
        try:
            opset = self.subject.function.opset
            found = call(statement.op, args, opset, len(statement.results))
        except OrionError as error:
            raise BackendError("compile", INVALID, got=error, hint=HINT) from error
        for fault in faults:
            if isinstance(fault, Miscomputed):
                others = [args[key] for key in fault.operands]
                nodes = [_node(value) for value in others]
                found = tuple(spoilt(fault.how, value, *nodes) for value in found)
        return found


def _current(value: Argument, now: Mapping[Node, Node]) -> Argument:
    if isinstance(value, tuple):
        return tuple(now.get(v, v) if isinstance(v, Node) else v for v in value)
    return now.get(value, value) if isinstance(value, Node) else value


def _node(value: Argument) -> Node:
    assert isinstance(value, Node | Constant), "a tuple is no operand of a fault"
    return value if isinstance(value, Node) else value.node
