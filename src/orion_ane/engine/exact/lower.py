"""Graph to tape by a chip's rules: products, what has a rule, and everything else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orion_ane.ane.numerics import Numerics
from orion_ane.engine.exact import products
from orion_ane.engine.exact.functions import exact_function
from orion_ane.engine.exact.values import entered, entering
from orion_ane.engine.functions import Function, function_of
from orion_ane.engine.half import rounder
from orion_ane.engine.known import Known
from orion_ane.engine.lowering import Lowering
from orion_ane.engine.threads import Threads
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.leaf import Weight
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.types import Array, DType

AXES = 2  # of a convolution, at most: along three it is computed in fp32


class ExactKnown(Known):
    """Constants that are folded by the same rules."""

    def __init__(self, weights: Mapping[Weight, Array], rules: Numerics, threads: Threads) -> None:
        super().__init__(weights, rounds=True)
        self.rules, self.threads = rules, threads

    def function(self, node: Node) -> Function:
        """The function of all operands, computed or not."""
        if node.op.name.startswith("constexpr_"):  # the compiler's work, not the device's
            settle, function = rounder(node.type.elements), function_of(node)
            is_half = node.type.dtype is DType.FP16
            return (lambda *args: settle(function(*args))) if is_half else function
        found = product_of(node, {}, self.rules, self.threads)
        return exact_function(node, self.rules) if found is None else found

    def held(self, constant: Array) -> Array:
        """A constant between steps: without NaN, where it was fp16."""
        value = super().held(constant)
        return entered(value) if constant.dtype == np.float16 else value

    def rounder(self, node: Node) -> Function | None:
        """Nothing: functions round themselves."""
        del node
        return None


class ExactLowering(Lowering):
    """A tape that computes by a chip's rules."""

    def __init__(
        self, graph: Graph, weights: Mapping[Weight, Array], rules: Numerics, threads: Threads
    ) -> None:
        super().__init__(graph, ExactKnown(weights, rules, threads), threads)
        self.rules = rules

    def _call(self, node: Node) -> tuple[Function, tuple[Node, ...]]:
        args = tuple(map(self.known.origin, node.args))
        constants = {i: self.constants[arg] for i, arg in enumerate(args) if arg in self.constants}
        found = product_of(node, constants, self.rules, self.threads)
        if found is None:
            return super()._call(node)
        is_prepared = 1 in constants and not isinstance(node.op, Matmul)
        return found, (args[0], *args[2:]) if is_prepared else args

    def entering(self, *, is_half: bool) -> Function | None:
        """An input's NaN counts as +inf."""
        return entering if is_half else None


def product_of(
    node: Node, constants: Mapping[int, Array], rules: Numerics, threads: Threads
) -> Function | None:
    """The product-sum that computes a node; None where none does.

    Args:
        node: any.
        constants: operands by place.  A constant weight is none of the function's arguments.
        rules: the chip's.
        threads: who computes.
    """
    if node.type.dtype is not DType.FP16:
        return None
    x, w, weight = node.args[:1], node.args[1:2], constants.get(1)
    match node.op:
        case Conv1x1():
            found = products.conv1x1(x[0].type, weight, rules, threads)
        case Linear():
            found = products.linear(weight, rules, threads)
        case Matmul() as op:
            found = products.matmul(op, x[0].type, w[0].type, rules, threads)
        case Conv() as op if node.type.rank - 2 <= AXES:
            found = products.convolution(op, x[0].type, w[0].type, weight, rules, threads)
        case _:
            return None
    return found
