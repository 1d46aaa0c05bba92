"""Axes that shrink to one, and softmax."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from orion_ane.errors import MilError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.leaf import const
from orion_ane.ops.rules import (
    ARITHMETIC,
    FLOATS,
    axes_of,
    axis_of,
    front,
    unary,
    want_dtypes,
)
from orion_ane.ops.shape import reshape
from orion_ane.types import Array, TensorType


@dataclass(frozen=True)
class Reduction(Op):
    """A row that folds `axes` of x to size one each."""

    axes: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, ARITHMETIC)
        axes = axes_of(self, self.axes, x)
        return x.with_shape(tuple(1 if i in axes else n for i, n in enumerate(x.shape)))

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x",), {"axes": self.axes, "keep_dims": True})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        everything = tuple(range(x.type.rank))
        axes = args.integers("axes", everything) if everything else ()
        keep_dims = args.flag("keep_dims", default=False)
        if not axes:
            raise MilError(args.op, "nothing to reduce", got=x.type, want="at least one axis")
        y = Node(cls(axes), (x,))
        if keep_dims:
            return y
        gone = {axis % x.type.rank for axis in axes}
        return reshape(y, tuple(n for i, n in enumerate(y.type.shape) if i not in gone))


def stretch(dy: Node, to: TensorType) -> Node:
    """`dy` broadcast to the type `to`, by a product with ones along each axis that grows.

    One axis at a time, so that the text holds a + b ones and not a · b.
    """
    for axis, size in enumerate(to.shape):
        if dy.type.shape[axis] != size:
            ones = np.ones((size, *(1,) * (to.rank - axis - 1)))
            dy = dy * const(ones, to.dtype)
    return dy


@dataclass(frozen=True)
class ReduceSum(Reduction, name="reduce_sum"):
    """The sum over `axes`, each kept with size 1.  x: T[...] -> T[..1..]."""

    def eval(self, args: Arrays) -> Array:
        return args[0].sum(axis=self.axes, keepdims=True, dtype=args[0].dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (stretch(dy, y.args[0].type),)


@dataclass(frozen=True)
class ReduceMean(Reduction, name="reduce_mean"):
    """The mean over `axes`, each kept with size 1.  x: F[...] -> F[..1..]."""

    def infer(self, args: Types) -> TensorType:
        want_dtypes(self, unary(self, args), FLOATS)
        return super().infer(args)

    def eval(self, args: Arrays) -> Array:
        return args[0].mean(axis=self.axes, keepdims=True)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x = y.args[0].type
        count = prod(x.shape[axis] for axis in self.axes)
        return (stretch(dy * const(1 / count, x.dtype), x),)


@dataclass(frozen=True)
class ReduceMax(Reduction, name="reduce_max"):
    """The largest over `axes`, each kept with size 1.  x: T[...] -> T[..1..].

    No gradient: it serves only as a shift that cancels (softmax), or as a scale that does.
    """

    def eval(self, args: Arrays) -> Array:
        return args[0].max(axis=self.axes, keepdims=True)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


@dataclass(frozen=True)
class Softmax(Op, name="softmax"):
    """exp(x) scaled to sum to one along `axis`.  x: F[...] -> F[...].

    A row of nothing but -inf, as a mask may leave it, becomes zeros (case N03).
    """

    axis: int

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        axis_of(self, self.axis, x)
        return x

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        top = x.max(axis=self.axis, keepdims=True)
        masked = np.isneginf(top)
        with np.errstate(under="ignore", invalid="ignore"):
            e = np.exp(x - np.where(masked, 0, top))  # shifted, so exp cannot overflow
            return e / np.where(masked, 1, e.sum(axis=self.axis, keepdims=True))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        # The Jacobian is diag(y) - y yᵀ.
        return (y * (dy - reduce_sum(dy * y, (self.axis,))),)

    def mil(self) -> MilCall:
        return MilCall("softmax", ("x",), {"axis": self.axis})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.integer("axis", -1)), (args.node("x"),))


def reduce_sum(x: Node, axes: tuple[int, ...]) -> Node:
    """The sum over `axes`, kept; negative axes count from the end."""
    return Node(ReduceSum(front(axes, x.type)), (x,))


def reduce_mean(x: Node, axes: tuple[int, ...]) -> Node:
    """The mean over `axes`, kept; negative axes count from the end."""
    return Node(ReduceMean(front(axes, x.type)), (x,))


def reduce_max(x: Node, axes: tuple[int, ...]) -> Node:
    """The largest over `axes`, kept; negative axes count from the end."""
    return Node(ReduceMax(front(axes, x.type)), (x,))


def softmax(x: Node, axis: int) -> Node:
    """exp(x) scaled to sum to one along `axis`."""
    return Node(Softmax(axis), (x,))
