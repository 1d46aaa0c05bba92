"""The product with a constant matrix, as converters write it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.arithmetic import unbroadcast
from orion_ane.ops.leaf import const
from orion_ane.ops.linear import matmul
from orion_ane.ops.rules import ARITHMETIC, typed, want_count, want_dtypes, want_same_dtype
from orion_ane.ops.shape import cast, reshape
from orion_ane.types import Array, DType, TensorType


@dataclass(frozen=True)
class Linear(Op, name="linear"):
    """x wᵀ + bias over the last axis.  x: T[...,I], w: T[O,I], bias: T[O] -> T[...,O].

    A bias that is not given reads as zeros, which MIL takes for it.  No gradient for w: the host
    multiplies it from the taps (x, dy).
    """

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        x, w, bias = args
        want_dtypes(self, x, ARITHMETIC)
        want_same_dtype(self, x, w, "xw")
        want_same_dtype(self, x, bias, "xb")
        if x.rank < 1 or w.rank != 2 or w.shape[1] != x.shape[-1]:
            got = f"x {x} and w {w}"
            raise ShapeError(self.name, "shapes do not fit", got=got, want="[...,I] and [O,I]")
        if bias.shape != w.shape[:1]:
            raise ShapeError(
                self.name, "bias does not fit", got=bias, want=w.with_shape(w.shape[:1])
            )
        return typed(self, x.dtype, (*x.shape[:-1], w.shape[0]))

    def eval(self, args: Arrays) -> Array:
        x, w, bias = args
        return np.matmul(x, w.T) + bias

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x, w, bias = y.args
        rows = reshape(dy, (1, *dy.type.shape)) if x.type.rank == 1 else dy
        dx = matmul(rows, w)
        return (
            dx if dx.type == x.type else reshape(dx, x.type.shape),
            None,
            unbroadcast(dy, bias.type),
        )

    def mil(self) -> MilCall:
        return MilCall("linear", ("x", "weight", "bias"))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, w, bias = args.node("x"), args.node("weight"), args.maybe("bias")
        if bias is None:
            bias = const(np.zeros(w.type.shape[:1]), w.type.dtype)
        return Node(cls(), (x, numeric(w, x), numeric(bias, x)))


def fitted(v: Node, x: Node) -> Node:
    """`v` in x's float type: from iOS17 on constants may have a float type of their own."""
    both = v.type.dtype.is_float and x.type.dtype.is_float
    return cast(v, x.type.dtype) if both and v.type.dtype is not x.type.dtype else v


def numeric(v: Node, x: Node) -> Node:
    """As `fitted`, and integers as floats: since iOS17 products take constants of any number."""
    is_mixed = v.type.dtype is DType.INT32 and x.type.dtype.is_float
    return cast(v, x.type.dtype) if is_mixed else fitted(v, x)
