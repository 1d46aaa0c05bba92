"""The layer norm as one op."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import compress

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.rules import (
    FLOATS,
    axes_of,
    held,
    want_count,
    want_dtypes,
    want_held,
    want_same_dtype,
)
from orion_ane.types import Array, DType, TensorType

EPSILON = 1e-5  # MIL's default


@dataclass(frozen=True)
class LayerNorm(Op, name="layer_norm"):
    """(x - mean) / sqrt(variance + eps) over `axes`, times gamma, plus beta, as far as given.

    x: F[...], gamma and beta: F[sizes of the axes, in x's order] -> F[...].  The variance is that
    of the values at hand, not an estimate.  eps is a value of fp32, as that of rsqrt.
    No gradient: models are trained with the form that is spelled in ops.
    """

    axes: tuple[int, ...]
    eps: float
    has_gamma: bool = False
    has_beta: bool = False

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 1 + self.has_gamma + self.has_beta)
        x = args[0]
        want_dtypes(self, x, FLOATS)
        axes = axes_of(self, self.axes, x)
        if not math.isfinite(self.eps):
            raise ShapeError(self.name, "eps is not finite", got=self.eps)
        want_held(self, "eps", self.eps, DType.FP32)
        shape = tuple(x.shape[axis] for axis in sorted(axes))
        for name, vector in zip(self.vectors, args[1:], strict=True):
            want_same_dtype(self, x, vector, f"x{name[0]}")
            if vector.shape != shape:
                raise ShapeError(
                    self.name, f"{name} does not fit", got=vector, want=x.with_shape(shape)
                )
        return x

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of the operands behind x."""
        return tuple(compress(("gamma", "beta"), (self.has_gamma, self.has_beta)))

    def eval(self, args: Arrays) -> Array:
        x = args[0]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            centred = x - x.mean(axis=self.axes, keepdims=True)
            variance = (centred * centred).mean(axis=self.axes, keepdims=True)
            y = centred / np.sqrt(variance + np.asarray(self.eps, x.dtype))
        vectors = dict(zip(self.vectors, args[1:], strict=True))
        if "gamma" in vectors:
            y = y * vectors["gamma"].reshape(along(self.axes, x.shape))
        if "beta" in vectors:
            y = y + vectors["beta"].reshape(along(self.axes, x.shape))
        return y

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,) * len(y.args)

    def mil(self) -> MilCall:
        return MilCall(
            "layer_norm", ("x", *self.vectors), {"axes": self.axes, "epsilon": float(self.eps)}
        )

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        axes = args.integers("axes", tuple(range(x.type.rank)) or None)
        if not axes:
            raise MilError("layer_norm", "no axes", got=x.type, want="at least one")
        eps = args.number("epsilon", held(EPSILON, DType.FP32))
        gamma, beta = args.maybe("gamma"), args.maybe("beta")
        vectors = tuple(fitted(v, x) for v in (gamma, beta) if v is not None)
        return Node(cls(axes, eps, gamma is not None, beta is not None), (x, *vectors))


def along(axes: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a value of these axes of x, in x's order, broadcasts against x."""
    front = {axis % len(x) for axis in axes}
    return tuple(size if axis in front else 1 for axis, size in enumerate(x))
