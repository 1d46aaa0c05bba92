"""Weights told where they lie: the step between a graph and its text."""

from __future__ import annotations

from dataclasses import replace

from orion_ane.errors import MilError
from orion_ane.ir import Graph, Node
from orion_ane.mil.blob import WeightFile
from orion_ane.ops import BlobRef, Weight
from orion_ane.types import TensorType


def place(graph: Graph, file: WeightFile) -> Graph:
    """The graph with each weight's reference into `file`, or itself where nothing changes.

    Raises:
        MilError: a weight is not in the file, or has another type there.
    """
    placed: dict[int, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, Weight):
            op = replace(node.op, at=_reference(node.op, file))
            placed[id(node)] = node if op == node.op else Node(op)
        else:
            args = tuple(placed[id(arg)] for arg in node.args)
            same = all(new is old for new, old in zip(args, node.args, strict=True))
            placed[id(node)] = node if same else node.on(args)
    if all(placed[id(node)] is node for node in graph.nodes):
        return graph
    outputs = {name: placed[id(node)] for name, node in graph.outputs.items()}
    return Graph(graph.inputs, outputs)


def _reference(leaf: Weight, file: WeightFile) -> BlobRef:
    found = file.types.get(leaf.label)
    if found is None or _without_ones(found) != _without_ones(leaf.of):
        what = f"missing in {file.path}" if found is None else f"has another type in {file.path}"
        raise MilError(f"weight {leaf.label}", what, got=found, want=leaf.of)
    return BlobRef(file.path, file.offsets[leaf.label])


def _without_ones(of: TensorType) -> TensorType:
    """The type without axes of size one: the same bytes, whether a matrix or a 1x1 kernel."""
    return of.with_shape(tuple(size for size in of.shape if size > 1))
