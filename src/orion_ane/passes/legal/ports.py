"""Ports of other types: an input is cut and cast where it enters, an output where it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.ops import cast, concat, const, pad, reshape, slice_by_index
from orion_ane.ops.leaf import Input
from orion_ane.types import TensorType

Surface: TypeAlias = Callable[[TensorType], TensorType]
"""The type of the surface for a port's type; the same one where the port may stay."""

Ports: TypeAlias = Mapping[str, Node]


def with_surfaces(graph: Graph, inputs: Surface, outputs: Surface) -> Graph:
    """The graph with these surfaces for ports, or `graph` itself where all may stay."""
    fed = {name: inputs(node.type) for name, node in graph.inputs.items()}
    given = {name: outputs(node.type) for name, node in graph.outputs.items()}
    if fed == _types(graph.inputs) and given == _types(graph.outputs):
        return graph
    made: dict[Node, Node] = {}
    leaves: dict[str, Node] = {}
    for name, node in graph.inputs.items():
        leaves[name] = made[node] = node
        if fed[name] != node.type:
            assert isinstance(node.op, Input)
            leaves[name] = Node(Input(node.op.label, fed[name]))
            made[node] = _entered(leaves[name], node.type)
    for node in graph.nodes:
        if node not in made:
            args = tuple(made[arg] for arg in node.args)
            made[node] = node if args == node.args else node.on(args)
    return Graph(
        leaves, {name: _left(made[node], given[name]) for name, node in graph.outputs.items()}
    )


def _types(ports: Ports) -> dict[str, TensorType]:
    return {name: node.type for name, node in ports.items()}


def _entered(surface: Node, of: TensorType) -> Node:
    """The value in a surface."""
    x = surface
    if x.type.shape != of.shape:
        shape = of.shape or (1,)
        if x.type.shape != shape:
            x = slice_by_index(x, (0,) * len(shape), shape)
        if not of.shape:
            x = reshape(x, ())
    return x if x.type.dtype == of.dtype else cast(x, of.dtype)


def _left(value: Node, surface: TensorType) -> Node:
    """The surface with a value in it."""
    x = value if value.type.dtype == surface.dtype else cast(value, surface.dtype)
    if not x.type.shape and surface.shape:
        x = reshape(x, (1,))
    after = tuple(n - m for n, m in zip(surface.shape, x.type.shape, strict=True))
    if not any(after):
        return x
    if x.type.dtype.is_float:
        return pad(x, (0,) * len(after), after)
    for axis, more in enumerate(after):  # `pad` takes floats alone
        if more:
            lack = (*x.type.shape[:axis], more, *x.type.shape[axis + 1 :])
            x = concat(x, const(np.zeros(lack, x.type.dtype.numpy), x.type.dtype), axis=axis)
    return x
