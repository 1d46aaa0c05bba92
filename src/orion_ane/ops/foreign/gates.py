"""Curves that gate their operand: gelu in its three forms, and silu."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.curve import Curve, Sigmoid, Tanh, sigmoid
from orion_ane.ops.leaf import const
from orion_ane.types import Array, TensorType

EXACT, TANH, SIGMOID = "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"
GELU_MODES = (EXACT, TANH, SIGMOID)

_erfc = np.frompyfunc(math.erfc, 1, 1)  # numpy has none; this one is exact to the last place


@dataclass(frozen=True)
class Gelu(Curve, name="gelu"):
    """x · Φ(x), where Φ is the normal distribution or what `mode` puts in its place.

    F[...] -> F[...].  EXACT is ½ erfc(-x/√2), TANH_APPROXIMATION ½ (1 + tanh(√(2/π) (x +
    0.044715 x³))), SIGMOID_APPROXIMATION sigmoid(1.702 x).  No gradient: models are trained with
    the form that is spelled in ops.
    """

    mode: str = EXACT

    def infer(self, args: Types) -> TensorType:
        if self.mode not in GELU_MODES:
            raise ShapeError(self.name, "no such mode", got=self.mode, want=", ".join(GELU_MODES))
        return super().infer(args)

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        with np.errstate(over="ignore", invalid="ignore"):
            if self.mode == SIGMOID:
                return x * Sigmoid().eval((np.asarray(1.702, x.dtype) * x,))
            if self.mode == TANH:
                inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
                return 0.5 * x * (1 + Tanh().eval((inner,)))
            tail = np.asarray(_erfc(x.astype(np.float64) * -math.sqrt(0.5)), np.float64)
            return np.asarray(0.5 * x * tail, x.dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)

    def mil(self) -> MilCall:
        return MilCall("gelu", ("x",), {"mode": self.mode})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.text("mode", EXACT)), (args.node("x"),))


@dataclass(frozen=True)
class Silu(Curve, name="silu"):
    """x · sigmoid(x).  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return args[0] * Sigmoid().eval(args)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        gate = sigmoid(y.args[0])
        return (dy * (gate + y * (const(1, y.type.dtype) - gate)),)
