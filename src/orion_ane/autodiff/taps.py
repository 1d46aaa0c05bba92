"""The backward kernel of a forward kernel, and what it needs of it.

A forward value that the backward kernel reads is a *tap*: an input or output of the forward
kernel, fed on.  The gradient of a weight matrix is no node: the host multiplies the two values of
a *pair* (dW = dy xᵀ, summed over lanes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orion_ane.autodiff.reverse import cotangents, substitute
from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, Input, Weight, input_
from orion_ane.ops.linear import Conv1x1
from orion_ane.ops.shape import Cast


@dataclass(frozen=True)
class Pair:
    """What the host multiplies to a weight matrix's gradient.

    Attributes:
        weight: the label.
        x: the forward input or output that the product read, [1,I,1,S].
        dy: the backward output that is the product's cotangent, [1,O,1,S].
    """

    weight: str
    x: str
    dy: str


@dataclass(frozen=True)
class Backward:
    """The reverse of a kernel.

    Attributes:
        forward: the forward graph, with what is tapped among its outputs.
        graph: taps by their forward names and `d_<output>` in; `d_<input>`, `d_<weight>` for each
            weight vector, and the dy of each pair out.
        pairs: what is left for the host; a weight used twice has two.
    """

    forward: Graph
    graph: Graph
    pairs: tuple[Pair, ...]

    @property
    def taps(self) -> tuple[str, ...]:
        """The inputs of the backward graph that the forward one gives or got."""
        known = {*self.forward.inputs, *self.forward.outputs}
        return tuple(name for name in self.graph.inputs if name in known)


def backward(
    graph: Graph,
    *,
    of: Iterable[str],
    wrt: Iterable[str],
    save: Mapping[str, Node] | None = None,
    weights: bool = True,
) -> Backward:
    """The backward kernel of a forward graph.

    Args:
        graph: the forward graph.
        of: outputs whose cotangents come in.
        wrt: inputs whose cotangents go out.
        save: forward values to tap, by name; what lies between them and the forward inputs is
            computed again. None taps whatever is read first, and computes nothing again.
        weights: whether gradients of weights are wanted.

    Raises:
        ShapeError: there is no such port, or an input that no gradient reaches.
    """
    seeds = {f"d_{name}": input_(f"d_{name}", _port(graph.outputs, name).type) for name in of}
    found = cotangents(graph, {name.removeprefix("d_"): seed for name, seed in seeds.items()})
    outputs: dict[str, Node] = {}
    for name in wrt:
        if (node := _port(graph.inputs, name)) not in found:
            raise ShapeError("gradient", "does not reach the input", got=name)
        outputs[f"d_{name}"] = found[node]
    uses = _products(graph, found) if weights else []
    outputs |= {f"dy_{i}_{label}": found[use] for i, (label, use) in enumerate(uses)}
    if weights:
        for node in graph.nodes:
            if isinstance(node.op, Weight) and node in found:
                name = f"d_{node.op.label}"
                known = outputs.get(name)
                outputs[name] = found[node] if known is None else known + found[node]
    saved = None if save is None else set(save.values())
    read = _first_read(graph, outputs.values(), saved)
    names = _names(graph, save or {}, [*read, *(use.args[0] for _, use in uses)])
    fed = {node: input_(names[node], node.type) for node in read}
    inputs = {names[node]: leaf for node, leaf in fed.items()}
    given = {name: node for node, name in names.items() if name not in graph.inputs}
    return Backward(
        Graph(graph.inputs, {**graph.outputs, **given}),
        Graph({**inputs, **seeds}, substitute(outputs, fed)),
        tuple(
            Pair(label, names[use.args[0]], f"dy_{i}_{label}")
            for i, (label, use) in enumerate(uses)
        ),
    )


def _port(ports: Mapping[str, Node], name: str) -> Node:
    if name not in ports:
        raise ShapeError("gradient", "no such port", got=name, want=list(ports))
    return ports[name]


def _products(graph: Graph, found: Mapping[Node, Node]) -> list[tuple[str, Node]]:
    """The products with a weight matrix that a gradient reaches, by the matrix's label."""
    uses = []
    for node in graph.nodes:
        if isinstance(node.op, Conv1x1) and node in found:
            w = node.args[1]
            matrix = w.args[0] if isinstance(w.op, Cast) else w
            if isinstance(matrix.op, Weight):
                uses.append((matrix.op.label, node))
    return uses


def _first_read(graph: Graph, roots: Iterable[Node], saved: set[Node] | None) -> list[Node]:
    """The forward values that backward nodes read, in forward order; leaves of the text aside."""
    forward = {node for node in graph.nodes if not isinstance(node.op, Const | Weight)}
    read, seen, stack = set[Node](), set[Node](), list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in forward and (saved is None or node in saved or isinstance(node.op, Input)):
            read.add(node)
        else:
            stack.extend(node.args)
    return [node for node in graph.nodes if node in read]


def _names(graph: Graph, save: Mapping[str, Node], nodes: Iterable[Node]) -> dict[Node, str]:
    """A port name for each node: the forward port's own, the caller's, or the next free one."""
    ports = {node: name for name, node in (*save.items(), *graph.outputs.items())}
    ports |= {node: name for name, node in graph.inputs.items()}
    taken = {*ports.values()}
    names: dict[Node, str] = {}
    for node in nodes:
        if node not in names:
            names[node] = ports.get(node) or f"tap_{len(names):02d}"
            if node not in ports and names[node] in taken:
                raise ShapeError("gradient", "a port has a tap's name", got=names[node])
    return names
