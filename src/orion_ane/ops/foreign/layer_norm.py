"""The layer norm as one op."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import compress

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.rules import (
    FLOATS,
    axes_of,
    held,
    want_count,
    want_dtypes,
    want_held,
    want_same_dtype,
)
from orion_ane.ops.shape import cast
from orion_ane.types import Array, DType, TensorType

EPSILON = 1e-5  # MIL's default


@dataclass(frozen=True)
class LayerNorm(Op, name="layer_norm"):
    """(x - mean) / sqrt(variance + eps) over `axes`, times gamma, plus beta, as far as given.

    x: F[...], gamma and beta: F[sizes of axes] -> F[...].  The variance is that of the values at
    hand, not an estimate.  eps is a value of fp32, as that of rsqrt.  No gradient: models are
    trained with the form that is spelled in ops.
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
        shape = tuple(x.shape[axis] for axis in axes)
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
            y = y * along(self.axes, vectors["gamma"], x.ndim)
        if "beta" in vectors:
            y = y + along(self.axes, vectors["beta"], x.ndim)
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
        vectors = tuple(args.maybe(name) for name in ("gamma", "beta"))
        # From iOS17 on gamma and beta may have a float type of their own.
        fitted = tuple(
            v
            if v.type.dtype is x.type.dtype or not v.type.dtype.is_float
            else cast(v, x.type.dtype)
            for v in vectors
            if v is not None
        )
        return Node(cls(axes, eps, *(v is not None for v in vectors)), (x, *fitted))


def along(axes: tuple[int, ...], vector: Array, rank: int) -> Array:
    """A value with one axis for each of `axes`, shaped to broadcast against `rank` axes."""
    order, shape = placed(axes, vector.shape, rank)
    return vector.transpose(order).reshape(shape)


def placed(
    axes: tuple[int, ...], sizes: tuple[int, ...], rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The transpose and then the shape that put axes of these sizes where `axes` says."""
    front = [axis % rank for axis in axes]
    order = tuple(sorted(range(len(axes)), key=front.__getitem__))
    shape = [1] * rank
    for axis, size in zip(front, sizes, strict=True):
        shape[axis] = size
    return order, tuple(shape)
