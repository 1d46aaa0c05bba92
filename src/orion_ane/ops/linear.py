"""Products: the 1×1 convolution that the ANE is made for, and matmul."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.arithmetic import unbroadcast
from orion_ane.ops.rules import (
    ARITHMETIC,
    FLOATS,
    broadcast,
    typed,
    want_count,
    want_dtypes,
    want_same_dtype,
)
from orion_ane.ops.shape import reshape, transpose
from orion_ane.types import Array, TensorType

_CONV_DEFAULTS: dict[str, tuple[int, ...]] = {
    "strides": (1, 1),
    "pad": (0, 0, 0, 0),
    "dilations": (1, 1),
}


@dataclass(frozen=True)
class Conv1x1(Op, name="conv1x1", mil=""):
    """out[o, s] = Σᵢ w[o, i] x[i, s].  x: F[1,I,1,S], w: F[O,I,1,1] -> F[1,O,1,S].

    Any batch and spatial sizes are taken; there is no bias (paper, limit 13): add it.
    No gradient for w: the host multiplies it from the taps (x, dy).
    """

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        x, w = args
        want_dtypes(self, x, FLOATS)
        want_same_dtype(self, x, w)
        if x.rank != 4 or w.rank != 4 or w.shape[2:] != (1, 1) or w.shape[1] != x.shape[1]:
            raise ShapeError(
                self.name,
                "shapes do not fit",
                got=f"x {x} and w {w}",
                want="[1,I,1,S] and [O,I,1,1]",
            )
        return typed(self, x.dtype, (x.shape[0], w.shape[0], *x.shape[2:]))

    def eval(self, args: Arrays) -> Array:
        x, w = args
        n, i, h, s = x.shape
        return np.matmul(w.reshape(-1, i), x.reshape(n, i, h * s)).reshape(n, -1, h, s)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        w = y.args[1]
        return conv1x1(dy, transpose(w, (1, 0, 2, 3))), None

    def mil(self) -> MilCall:
        return MilCall(
            "conv", ("x", "weight"), {**_CONV_DEFAULTS, "pad_type": "valid", "groups": 1}
        )

    @classmethod
    def read(cls, args: MilArgs) -> NoReturn:
        raise MilError(args.op, "a conv1x1 is read by the row of all convolutions")


@dataclass(frozen=True)
class Matmul(Op, name="matmul"):
    """x @ y over the last two axes, the others broadcast; tx and ty transpose a side first.

    x: T[...,M,K], y: T[...,K,N] -> T[...,M,N].
    """

    tx: bool = False
    ty: bool = False

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        x, y = args
        want_dtypes(self, x, ARITHMETIC)
        want_same_dtype(self, x, y)
        if x.rank < 2 or y.rank < 2:
            raise ShapeError(self.name, "rank too low", got=f"x {x} and y {y}", want="at least 2")
        m, k = x.shape[:-3:-1] if self.tx else x.shape[-2:]
        k2, n = y.shape[:-3:-1] if self.ty else y.shape[-2:]
        if k != k2:
            raise ShapeError(self.name, "inner sizes differ", got=f"{k} of x {x} and {k2} of y {y}")
        return typed(self, x.dtype, (*broadcast(self, x, y, skip=2), m, n))

    def eval(self, args: Arrays) -> Array:
        x, y = args
        return np.matmul(x.swapaxes(-1, -2) if self.tx else x, y.swapaxes(-1, -2) if self.ty else y)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        da = matmul(b, dy, tx=self.ty, ty=True) if self.tx else matmul(dy, b, ty=not self.ty)
        db = matmul(dy, a, tx=True, ty=self.tx) if self.ty else matmul(a, dy, tx=not self.tx)
        return unbroadcast(da, a.type), unbroadcast(db, b.type)

    def mil(self) -> MilCall:
        return MilCall("matmul", ("x", "y"), {"transpose_x": self.tx, "transpose_y": self.ty})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        tx = args.flag("transpose_x", default=False)
        ty = args.flag("transpose_y", default=False)
        x, y = args.node("x"), args.node("y")
        row, column = x.type.rank == 1, y.type.rank == 1  # a vector is a row of x, a column of y
        if (row and tx) or (column and ty):
            raise MilError("matmul", "a vector is not transposed", got=f"x {x.type}, y {y.type}")
        x = reshape(x, (1, *x.type.shape)) if row else x
        y = reshape(y, (*y.type.shape, 1)) if column else y
        z = Node(cls(tx, ty), (x, y))
        if not row and not column:
            return z
        *batch, m, n = z.type.shape
        return reshape(z, (*batch, *(() if row else (m,)), *(() if column else (n,))))


def conv1x1(x: Node, w: Node) -> Node:
    """out[o, s] = Σᵢ w[o, i] x[i, s], for x [1,I,1,S] and w [O,I,1,1]."""
    return Node(Conv1x1(), (x, w))


def matmul(x: Node, y: Node, *, tx: bool = False, ty: bool = False) -> Node:
    """X @ y over the last two axes; tx and ty transpose a side first."""
    return Node(Matmul(tx, ty), (x, y))
