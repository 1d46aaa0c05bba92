"""Cotangents of a graph, as nodes: reverse mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, Node


def cotangents(graph: Graph, seeds: Mapping[str, Node]) -> dict[Node, Node]:
    """The cotangent of every node that an output with a seed depends on through gradients.

    Args:
        graph: the forward graph.
        seeds: the cotangent of outputs, by name; those without one do not count.

    Returns:
        Nodes that speak of forward values as nodes of `graph` itself; a weight of a product has
        none, since its gradient is the host's (`taps.pairs`).

    Raises:
        ShapeError: no such output, or a seed of another type.
    """
    found: dict[Node, Node] = {}
    for name, seed in seeds.items():
        if name not in graph.outputs:
            raise ShapeError("gradient", "no such output", got=name, want=list(graph.outputs))
        node = graph.outputs[name]
        if seed.type != node.type:
            raise ShapeError(f"gradient of {name}", "another type", got=seed.type, want=node.type)
        _accumulate(found, node, seed)
    for node in reversed(graph.nodes):
        if node not in found or not node.args:
            continue
        for arg, cotangent in zip(node.args, node.op.grad(node, found[node]), strict=True):
            if cotangent is not None:
                _accumulate(found, arg, cotangent)
    return found


def substitute(outputs: Mapping[str, Node], new: Mapping[Node, Node]) -> dict[str, Node]:
    """The outputs with some nodes exchanged for others, and what uses them rebuilt.

    What lies behind an exchanged node is not visited.
    """
    built = dict(new)
    for node in _behind(outputs.values(), new):
        args = tuple(built[arg] for arg in node.args)
        built[node] = node if args == node.args else Node(node.op, args)
    return {name: built[node] for name, node in outputs.items()}


def _behind(roots: Iterable[Node], stop: Mapping[Node, Node]) -> list[Node]:
    """What the roots need up to `stop`, operands first: a loop, as deep graphs ask for."""
    order: list[Node] = []
    done = set(stop)
    stack = [(node, False) for node in roots]
    while stack:
        node, entered = stack.pop()
        if node in done:
            continue
        if entered:
            done.add(node)
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend((arg, False) for arg in node.args if arg not in done)
    return order


def _accumulate(found: dict[Node, Node], node: Node, cotangent: Node) -> None:
    found[node] = found[node] + cotangent if node in found else cotangent
