"""Graph: a named boundary around a topologically ordered body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Node, Op


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs and outputs by name, in the order declared, and every node between, sorted.

    An output is made by an op: an input that is returned goes through `identity`, so that the
    two ports keep names of their own.  `nodes` holds each node once, operands first: the inputs
    as declared, then a depth-first walk from the outputs in their order, so that equal graphs
    list alike.

    Raises:
        ShapeError: an output uses an input leaf that is not declared, or there is no output.
    """

    inputs: Mapping[str, Node]
    outputs: Mapping[str, Node]
    nodes: tuple[Node, ...] = field(init=False)

    def __post_init__(self) -> None:
        freeze = object.__setattr__
        freeze(self, "inputs", MappingProxyType(dict(self.inputs)))
        made = {
            name: Node(Op.table["identity"](), (node,)) if node.op.name == "input" else node
            for name, node in self.outputs.items()
        }
        freeze(self, "outputs", MappingProxyType(made))
        freeze(self, "nodes", toposort([*self.inputs.values(), *self.outputs.values()]))
        if not self.outputs:
            raise ShapeError("graph", "no output")
        declared = set(map(id, self.inputs.values()))
        for node in self.nodes:
            if node.op.name == "input" and id(node) not in declared:
                raise ShapeError("graph", "an input is used but not declared", got=node)


def toposort(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Every node the roots need, each once, operands first.

    A loop, since a 12-layer training graph is deeper than Python's stack.
    """
    order: list[Node] = []
    done: set[int] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, entered = stack.pop()
            if id(node) in done:
                continue
            if entered:
                done.add(id(node))
                order.append(node)
                continue
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args) if id(arg) not in done)
    return tuple(order)


def isomorphic(a: Graph, b: Graph) -> bool:
    """Whether two graphs are the same up to the identity of their nodes and their sharing.

    Ports are compared by name and order, ops with their parameters, leaves with their payload.
    Two equal computations count as one, so a graph equals itself after common subexpressions.
    """
    if list(a.inputs) != list(b.inputs) or list(a.outputs) != list(b.outputs):
        return False
    classes: dict[tuple[Op | str, tuple[int, ...]], int] = {}

    def numbers(graph: Graph) -> dict[int, int]:
        names = {id(node): f"input {name}" for name, node in graph.inputs.items()}
        found: dict[int, int] = {}
        for node in graph.nodes:
            args = tuple(found[id(arg)] for arg in node.args)
            name = names.get(id(node))
            key = (node.op if name is None else f"{name} {node.type}", args)
            found[id(node)] = classes.setdefault(key, len(classes))
        return found

    of_a, of_b = numbers(a), numbers(b)
    same_inputs = all(of_a[id(n)] == of_b[id(b.inputs[k])] for k, n in a.inputs.items())
    same_outputs = all(of_a[id(n)] == of_b[id(b.outputs[k])] for k, n in a.outputs.items())
    return same_inputs and same_outputs
