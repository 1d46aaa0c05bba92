"""What is made of constants alone is a constant, as far as it stays small.

A weight's value is not known here.  Of weights that have a place in a file, a reshape that adds or
drops axes of size one is folded: the bytes are the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, Weight, evaluate_op
from orion_ane.ops.foreign.attention import Attention
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.shape import Identity, Reshape
from orion_ane.passes.rewrite import rewrite
from orion_ane.types import TensorType

SMALL = 4096
"""Elements that a folded constant may have."""
WORK = SMALL * SMALL
"""Elements of the result times those of the largest operand: a hostile text folds no longer."""
_WALKS = (Conv, ConvTranspose, Attention)
_PRODUCTS = (Conv1x1, Matmul, Linear)
"""What numpy's BLAS sums: of more than 4096 numbers with threads, whose number shows."""


def fold_constants(node: Node) -> Node | None:
    """An op on constants -> its value, bit by bit what `evaluate` gives."""
    values = [arg.op.value for arg in node.args if isinstance(arg.op, Const)]
    size = node.type.elements
    if not values or len(values) < len(node.args):
        return None
    if isinstance(node.op, Identity):
        return node.args[0]
    largest = max(value.size for value in values)
    if size > SMALL or size * largest > WORK or isinstance(node.op, _WALKS):
        return None
    if isinstance(node.op, _PRODUCTS) and largest > SMALL:
        return None
    with np.errstate(all="ignore"):
        value = evaluate_op(node.op, tuple(values), node.type)
    return Node(Const(node.type, value.tobytes()))


def fold_reshape(node: Node) -> Node | None:
    """A reshape of a leaf -> that leaf in the other shape."""
    match node:
        case Node(op=Reshape(), args=(x,)) if not (isinstance(x.op, Weight) and x.op.at is None):
            return reshaped(x, node.type)
    return None


def reshaped(leaf: Node, of: TensorType) -> Node | None:
    """A constant in another shape, or a weight where only axes of size one come and go."""
    if isinstance(leaf.op, Const):
        return Node(Const(of, leaf.op.data))
    if isinstance(leaf.op, Weight) and _sizes(of) == _sizes(leaf.type):
        return Node(replace(leaf.op, of=of))
    return None


def _sizes(of: TensorType) -> list[int]:
    return [size for size in of.shape if size > 1]


def fold(graph: Graph) -> Graph:
    """The graph in which nothing small is computed from constants alone."""
    return rewrite(graph, fold_reshape, fold_constants)
