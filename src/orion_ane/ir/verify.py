"""The invariants of a Graph, run around each pass in tests and on --verify."""

from __future__ import annotations

from orion_ane.errors import ShapeError
from orion_ane.ir.graph import Graph
from orion_ane.types import TensorType


def verify(graph: Graph) -> None:
    """Check what construction cannot: order, closure, types still true, a leaf a name.

    Raises:
        ShapeError: naming the node that breaks an invariant.
    """
    seen: set[int] = set()
    for node in graph.nodes:
        if any(id(arg) not in seen for arg in node.args):
            raise ShapeError("graph", "a node comes before its operand", got=node)
        if id(node) in seen:
            raise ShapeError("graph", "a node is listed twice", got=node)
        if node.op.infer(tuple(arg.type for arg in node.args)) != node.type:
            raise ShapeError("graph", "a node's type is not what its op infers", got=node)
        seen.add(id(node))
    for name, node in graph.inputs.items():
        if node.op.name != "input":
            raise ShapeError("graph", f"input {name} is not an input leaf", got=node)
    if len({id(node) for node in graph.inputs.values()}) != len(graph.inputs):
        raise ShapeError("graph", "one leaf is declared as two inputs", got=list(graph.inputs))
    weights: dict[str, TensorType] = {}
    for node in graph.nodes:
        label = getattr(node.op, "label", "")
        if node.op.name == "weight" and weights.setdefault(label, node.type) != node.type:
            got = f"{label} {weights[label]} and {node.type}"
            raise ShapeError("graph", "one weight has two types", got=got)
    for name, node in graph.outputs.items():
        if id(node) not in seen:
            raise ShapeError("graph", f"output {name} is not in the body", got=node)
