"""What is known of a graph before it runs: constants, folded, and values that are others'."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orion_ane.engine.functions import ROUNDS_NOTHING, Function, function_of
from orion_ane.engine.half import rounder, widen
from orion_ane.errors import ShapeError
from orion_ane.ir.node import Node
from orion_ane.ops.foreign.attention import Attention
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.leaf import Const, Input, Weight
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.shape import Cast, Identity, Reshape, Slice, Transpose
from orion_ane.types import Array, DType

MAX_FOLDED_BYTES = 1 << 24  # a constant may grow to this when it is folded; larger ones only shrink
PRODUCTS = (Conv1x1, Matmul, Linear, Conv, ConvTranspose, Attention)
"""Not folded: who computes has kernels for them."""
BLOCK = 128  # columns of a transposed matrix that are laid out at once: their rows stay in cache


class Known:
    """The constants among nodes that are shown in order, and whose value each node has.

    Args:
        weights: an array for each weight leaf, of its type.
        rounds: whether what is declared fp16 is rounded to it.
    """

    def __init__(self, weights: Mapping[Weight, Array], *, rounds: bool) -> None:
        self.weights, self.rounds = weights, rounds
        self.origins: dict[Node, Node] = {}  # of a node whose value is another's
        self.constants: dict[Node, Array] = {}  # fp16 ones as stored: kernels read them so

    def origin(self, node: Node) -> Node:
        """The node whose value this one has: itself, as a rule."""
        return self.origins.get(node, node)

    def is_computed(self, node: Node) -> bool:
        """Whether a step computes the node; else it is an input, a constant or another's value."""
        match node.op:
            case Input():
                return False
            case Const() as const:
                self.constants[node] = const.value
                return False
            case Weight() as weight:
                self.constants[node] = self._weight(weight)
                return False
        args = tuple(map(self.origin, node.args))
        if self._is_same(node):
            self.origins[node] = args[0]
            return False
        folded = self._fold(node, args)
        if folded is None:
            return True
        self.constants[node] = folded
        return False

    def _weight(self, weight: Weight) -> Array:
        found = self.weights.get(weight)
        want = (weight.of.dtype.numpy, weight.of.shape)
        if found is None or (found.dtype, found.shape) != want:
            got = None if found is None else f"{found.dtype}{list(found.shape)}"
            raise ShapeError(f"weight {weight.label}", "no fitting value", got=got, want=weight.of)
        return np.require(found, requirements=["C", "A"])

    def _is_same(self, node: Node) -> bool:
        """Whether the node's value is its operand's as it is held here."""
        match node:
            case Node(op=Identity()):
                return True
            case Node(op=Cast(to=to), args=(x,)) if to.is_float and x.type.dtype.is_float:
                return to is DType.FP32 or to is x.type.dtype or not self.rounds
        return False

    def _fold(self, node: Node, args: tuple[Node, ...]) -> Array | None:
        """The node's value, where its operands are constants and it is cheap to keep."""
        if not all(arg in self.constants for arg in args) or isinstance(node.op, PRODUCTS):
            return None
        known = [self.constants[arg] for arg in args]
        if node.type.nbytes > max(MAX_FOLDED_BYTES, *(array.nbytes for array in known)):
            return None
        match node.op:
            case Reshape() | Transpose() | Slice():  # moved as stored: an fp16 weight stays fp16
                return packed(node.op.eval((known[0],)))
            case Cast(to=DType.FP16):  # `_is_same` took the casts that keep more
                return known[0].astype(np.float16 if self.rounds else np.float32)
        function, rounded = self.function(node), self.rounder(node)
        result = function(*map(self.held, known))
        return np.asarray(result if rounded is None else rounded(result))

    def function(self, node: Node) -> Function:
        """What computes the node of all its operands; see `function_of`."""
        return function_of(node)

    def held(self, constant: Array) -> Array:
        """A constant as values are held between steps."""
        return held(constant)

    def rounder(self, node: Node) -> Function | None:
        """What rounds the node's value to its type; None where nothing does."""
        is_exact = not self.rounds or node.type.dtype is not DType.FP16
        return (
            None if is_exact or isinstance(node.op, ROUNDS_NOTHING) else rounder(node.type.elements)
        )


def packed(array: Array) -> Array:
    """The array, C-contiguous; a transposed matrix some columns at a time, five times sooner.

    Weights that are read both ways are laid out again whenever they are exchanged.
    """
    matrix = array.squeeze()
    if matrix.ndim != 2 or array.flags.c_contiguous or not matrix.flags.f_contiguous:
        return np.asarray(array, order="C")
    found = np.empty(array.shape, array.dtype)
    rows = found.reshape(matrix.shape)
    for at in range(0, matrix.shape[1], BLOCK):
        rows[:, at : at + BLOCK] = matrix[:, at : at + BLOCK]
    return found


def held(constant: Array) -> Array:
    """A constant as values are held between steps."""
    return widen(constant) if constant.dtype == np.float16 else constant
