"""Weights that are read the other way round where they lie, since a wide product can."""

from __future__ import annotations

from orion_ane.engine.plan.layout import SMALL_PRODUCT, THIN_COLUMNS, WIDE
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.leaf import Weight
from orion_ane.ops.linear import Conv1x1
from orion_ane.ops.shape import Cast, Transpose
from orion_ane.types import DType


def is_wide(product: Node) -> bool:
    """Whether a product with a weight is laid out in panels, rather than done row by row."""
    n, inner, h, s = product.args[0].type.shape
    outer, columns = product.type.shape[1], n * h * s
    is_large = outer * inner * columns > SMALL_PRODUCT
    return columns > THIN_COLUMNS and outer >= WIDE and is_large


def turned(graph: Graph) -> frozenset[Node]:
    """The transposed weights of a graph that wide products alone read.

    To lay such a weight out again would hold it twice, and take longer than all else that is done
    when weights are exchanged.
    """
    roots: dict[Node, Node] = {}  # of a value that is a transposed weight, as stored or widened
    lost: set[Node] = set()
    for node in graph.nodes:
        if isinstance(node.op, Transpose) and _is_matrix(_stored(node.args[0])):
            roots[node] = node
            continue
        if _is_widened(node) and node.args[0] in roots:
            roots[node] = roots[node.args[0]]
            continue
        is_read = isinstance(node.op, Conv1x1) and is_wide(node)
        others = node.args[:1] if is_read else node.args
        lost.update(roots[arg] for arg in others if arg in roots)
    lost.update(roots[node] for node in graph.outputs.values() if node in roots)
    return frozenset(set(roots.values()) - lost)


def _is_widened(node: Node) -> bool:
    return (
        isinstance(node.op, Cast) and node.op.to is DType.FP32 and node.args[0].type.dtype.is_float
    )


def _stored(node: Node) -> Node:
    return node.args[0] if _is_widened(node) else node


def _is_matrix(node: Node) -> bool:
    shape = node.type.shape
    return isinstance(node.op, Weight) and node.type.dtype.is_float and shape[2:] == (1, 1)
