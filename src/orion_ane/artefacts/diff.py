"""Structural difference of two programs, for people: what is computed, not how it is written.

Names, the order of independent statements, the dialect, and how a constant is spelled are no
difference.  Ports are matched by name where both sides have it, else by place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.artefacts.side import PortNode, Side, Spot, described, sides_of
from orion_ane.ir.node import Node
from orion_ane.mil.opaque import Opaque
from orion_ane.mil.program import Program
from orion_ane.ops.leaf import Const, Input, Leaf, Weight
from orion_ane.types import Array

MAX_DIFFERENCES = 1000
"""Programs that part in more places are different enough."""
NOTHING = Spot("none")


@dataclass(frozen=True)
class Difference:
    """One place where two programs part.

    Attributes:
        where: the port or output whose value it changes.
        what: how they part, in words.
        a: the place in the first program.
        b: the place in the second.
    """

    where: str
    what: str
    a: Spot
    b: Spot

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n  first:  {self.a}\n  second: {self.b}"


def diff(a: Program | str, b: Program | str) -> tuple[Difference, ...]:
    """Where two programs, or texts alone, part; empty where they are the same.

    The contents of weights are compared where both are programs with their blob files; of a text
    alone only the types of weights, and that one weight is not read in place of another.  Each op
    that differs is told once; what differs only because its operands do is not.

    Raises:
        MilError: a text is not MIL, or a blob is not where the text says.
    """
    ours, theirs = sides_of(a), sides_of(b)
    if len(ours) == len(theirs) == 1:
        pairs = [(next(iter(ours.values())), next(iter(theirs.values())))]
        return tuple(_of_functions(*pairs[0], ""))
    found: list[Difference] = []
    for name in dict.fromkeys([*ours, *theirs]):
        x, y = ours.get(name), theirs.get(name)
        if x is not None and y is not None:
            found += _of_functions(x, y, f"function {name}, ")
        else:
            what = f"only in the {'second' if x is None else 'first'}"
            found.append(Difference(f"function {name}", what, NOTHING, NOTHING))
    return tuple(found)


def _of_functions(a: Side, b: Side, prefix: str) -> Iterator[Difference]:
    walk = _Walk(a, b, prefix)
    walk.match_ports()
    for name, x, y in walk.outputs:
        walk.compare(f"output {name}", x, y)
        if len(walk.found) >= MAX_DIFFERENCES:
            break
    if not walk.found:
        walk.compare_counts()
    yield from walk.found[:MAX_DIFFERENCES]


class _Walk:
    """Both graphs, walked in step from their outputs; each node of the first is met once."""

    def __init__(self, a: Side, b: Side, prefix: str) -> None:
        self.a, self.b, self.prefix = a, b, prefix
        self.found: list[Difference] = []
        self.partner: dict[Node, Node] = {}
        self.told: set[tuple[object, object]] = set()  # leaves that part, once each
        self.compared: dict[tuple[object, object], str] = {}  # weights' contents
        self.ports: dict[Node, Node] = {}
        self.outputs: list[tuple[str, Node, Node]] = []
        self.classes = _classes(b)
        self.reads: dict[object, object] = {}
        self.read_by: dict[object, object] = {}

    def tell(self, where: str, what: str, a: Spot, b: Spot) -> None:
        """Note a difference."""
        self.found.append(Difference(self.prefix + where, what, a, b))

    def match_ports(self) -> None:
        """Pair inputs and outputs, and compare what their sides declare of them."""
        for name, x, y in _matched(self.a.inputs, self.b.inputs):
            if self._both(f"input {name}", x, y) and x and y:
                self.ports[x.node] = y.node
                self._compare_types(f"input {name}", x, y)
        for name, x, y in _matched(self.a.outputs, self.b.outputs):
            if self._both(f"output {name}", x, y) and x and y:
                self.outputs.append((name, x.node, y.node))
                if x.node.type == y.node.type:  # else the op is told that makes the difference
                    self._compare_types(f"output {name}", x, y)

    def _both(self, where: str, x: PortNode | None, y: PortNode | None) -> bool:
        """Whether both sides have a port; told where not."""
        if x is None and y is not None:
            self.tell(where, "only in the second", NOTHING, self.b.port_spot(y.symbol))
        if x is not None and y is None:
            self.tell(where, "only in the first", self.a.port_spot(x.symbol), NOTHING)
        return x is not None and y is not None

    def _compare_types(self, where: str, x: PortNode, y: PortNode) -> None:
        ours, theirs = self.a.port_types(x), self.b.port_types(y)
        if ours != theirs:
            what = f"type differs: {ours} against {theirs}"
            self.tell(where, what, self.a.port_spot(x.symbol), self.b.port_spot(y.symbol))

    def compare(self, where: str, x: Node, y: Node) -> None:
        """Walk two values' makers in step; a loop, since graphs are deeper than Python's stack."""
        stack = [(x, y, x, y)]
        while stack and len(self.found) < MAX_DIFFERENCES:
            x, y, user_x, user_y = stack.pop()
            is_leaf = isinstance(x.op, Leaf) or isinstance(y.op, Leaf)
            known = self.partner.get(x)
            if is_leaf:
                what = self._of_leaves(x, y)
            elif known is None:
                self.partner[x] = y
                what = _of_ops(self.a, self.b, x, y)
            else:
                what = self._of_met(x, known, y)
            if what:
                self.tell(where, what, self.a.spot(x, user_x), self.b.spot(y, user_y))
            if known is None and not is_leaf and _is_alike(x, y):
                pairs = list(zip(x.args, y.args, strict=True))
                stack.extend((m, n, x, y) for m, n in reversed(pairs))

    def _of_met(self, x: Node, known: Node, y: Node) -> str:
        """How the partner of a value that was met before parts from the partner it had."""
        if self.classes[known] == self.classes[y]:
            return ""
        return f"{described(x)} serves here too, in the second it is another: {described(y)}"

    def _of_leaves(self, x: Node, y: Node) -> str:
        """How two leaves, or a leaf and an op, part; empty where they do not."""
        match x.op, y.op:
            case (Input(), Input()):
                if self.ports.get(x) is y or (x, y) in self.told:
                    return ""
                self.told.add((x, y))
                return f"reads {described(x)} against {described(y)}"
            case (Const() as p, Const() as q):
                if p == q:
                    return ""
                if p.of != q.of:
                    return f"constant's type differs: {described(x)} against {described(y)}"
                return f"constant differs: {_apart(p.value, q.value)}"
            case (Weight(), Weight()):
                return self._of_weights(x, y)
        return f"{described(x)} against {described(y)}"

    def _of_weights(self, x: Node, y: Node) -> str:
        if x.type != y.type:
            return f"weight's type differs: {described(x)} against {described(y)}"
        mine, other = self.a.reference(x), self.b.reference(y)
        ours, theirs = self.a.contents(x), self.b.contents(y)
        if ours is not None and theirs is not None:
            if (mine, other) not in self.compared:
                self.compared[mine, other] = _apart(ours, theirs)
            apart = self.compared[mine, other]
            if apart and (mine, other) in self.told:
                return ""
            self.told.add((mine, other))
            return f"{described(x)}: contents differ: {apart}" if apart else ""
        is_same = self.reads.setdefault(mine, other) == other
        if is_same and self.read_by.setdefault(other, mine) == mine:
            return ""
        return f"reads {described(x)} against {described(y)}, one of which serves elsewhere too"

    def compare_counts(self) -> None:
        """Where the outputs are the same: what is computed twice, or for nothing."""
        needed = [_needed(side) for side in (self.a, self.b)]
        where = "program"
        counts = [Counter(node.op.name for node in nodes) for nodes in needed]
        for op in sorted(counts[0].keys() | counts[1].keys()):
            times = counts[0][op], counts[1][op]
            if times[0] != times[1]:
                what = f"{op}: {times[0]} statements against {times[1]} for the same values"
                self.tell(where, what, NOTHING, NOTHING)
        unused = [_unused(side, used) for side, used in zip((self.a, self.b), needed, strict=True)]
        for op in sorted({*unused[0], *unused[1]}):
            ours, theirs = unused[0].get(op, []), unused[1].get(op, [])
            if len(ours) != len(theirs):
                what = f"{op} that no output needs: {len(ours)} against {len(theirs)}"
                spots = [
                    side.spot(nodes[0], nodes[0]) if nodes else NOTHING
                    for side, nodes in ((self.a, ours), (self.b, theirs))
                ]
                self.tell(where, what, *spots)


def _is_alike(x: Node, y: Node) -> bool:
    """Whether operands of two ops belong together: the op is the same, or takes the same types."""
    same_types = [arg.type for arg in x.args] == [arg.type for arg in y.args]
    return len(x.args) == len(y.args) and (type(x.op) is type(y.op) or same_types)


def _matched(
    ours: Mapping[str, PortNode], theirs: Mapping[str, PortNode]
) -> Iterator[tuple[str, PortNode | None, PortNode | None]]:
    """Ports that belong together: those of one name, the rest by place."""
    rest = iter([name for name in theirs if name not in ours])
    for name, port in ours.items():
        other = name if name in theirs else next(rest, None)
        yield name, port, None if other is None else theirs[other]
    yield from ((name, None, theirs[name]) for name in rest)


def _of_ops(a: Side, b: Side, x: Node, y: Node) -> str:
    """How two ops part, their operands aside; empty where they do not."""
    if x.op == y.op and not isinstance(x.op, Opaque):
        if len(x.args) != len(y.args):
            return f"{x.op.name}: {len(x.args)} operands against {len(y.args)}"
        return ""
    ours, theirs = a.call(x), b.call(y)
    if ours.op != theirs.op or type(x.op) is not type(y.op):
        return f"another op: {ours.op} against {theirs.op}"
    apart = [
        f"{key}: {_shown(ours.consts.get(key))} against {_shown(theirs.consts.get(key))}"
        for key in sorted({*ours.consts, *theirs.consts})
        if ours.consts.get(key) != theirs.consts.get(key)
    ]
    if len(x.args) != len(y.args):
        apart.append(f"{len(x.args)} operands against {len(y.args)}")
    if apart:
        return f"{ours.op}: parameters differ: {'; '.join(apart)}"
    return "" if x.op == y.op else f"{described(x)} against {described(y)}: {x.op} and {y.op}"


def _apart(a: Array, b: Array) -> str:
    """Where two arrays of one type differ, bit by bit; empty where nowhere."""
    x, y = (np.ascontiguousarray(v).reshape(-1) for v in (a, b))
    bits = f"u{x.dtype.itemsize}"
    differ = np.flatnonzero(x.view(bits) != y.view(bits))
    if not len(differ):
        return ""
    first = np.unravel_index(differ[0], a.shape) if a.ndim else ()
    at = f" at [{', '.join(map(str, first))}]" if a.ndim else ""
    of = f"{len(differ)} of {x.size} elements, first{at}: " if a.size > 1 else ""
    return f"{of}{x[differ[0]]} against {y[differ[0]]}"


def _shown(value: object) -> str:
    return "not given" if value is None else f"{value}"[:200]


def _classes(side: Side) -> dict[Node, int]:
    """A number for each node, equal for equal values."""
    numbers: dict[object, int] = {}
    found: dict[Node, int] = {}
    for node in side.graph.nodes:
        key: object
        if isinstance(node.op, Input):
            key = id(node)
        elif isinstance(node.op, Weight):
            key = side.reference(node)
        else:
            key = (side.key(node), tuple(found[arg] for arg in node.args))
        found[node] = numbers.setdefault(key, len(numbers))
    return found


def _needed(side: Side) -> set[Node]:
    """The values that outputs need and an op makes."""
    return {node for node in side.graph.nodes if not isinstance(node.op, Leaf)}


def _unused(side: Side, needed: set[Node]) -> dict[str, list[Node]]:
    """The statements that no output needs, by op."""
    found: dict[str, list[Node]] = {}
    for statement in side.function.statements:
        made: Iterable[Node] = (n for n in statement.nodes if not isinstance(n.op, Leaf))
        nodes = list(made)
        if nodes and not any(node in needed for node in nodes):
            found.setdefault(statement.op, []).append(nodes[0])
    return found
