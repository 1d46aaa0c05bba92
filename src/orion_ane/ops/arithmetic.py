"""Two operands that broadcast, and the reverse of broadcasting."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.leaf import Const, const
from orion_ane.ops.reduction import reduce_sum
from orion_ane.ops.rules import (
    ARITHMETIC,
    CHOSEN,
    FLOATS,
    broadcast,
    held,
    rounded,
    typed,
    unary,
    want_count,
    want_dtypes,
    want_held,
    want_same_dtype,
)
from orion_ane.ops.shape import reshape
from orion_ane.types import Array, DType, TensorType


def unbroadcast(dy: Node, to: TensorType) -> Node:
    """`dy` summed over the axes on which an operand of type `to` was stretched."""
    extra = dy.type.rank - to.rank
    stretched = tuple(
        axis
        for axis, size in enumerate(dy.type.shape)
        if size > 1 and (axis < extra or to.shape[axis - extra] == 1)
    )
    summed = reduce_sum(dy, stretched) if stretched else dy
    return summed if summed.type == to else reshape(summed, to.shape)


class Binary(Op):
    """A row with operands x and y of one element type that broadcast by numpy's rules."""

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        x, y = args
        want_dtypes(self, x, ARITHMETIC)
        want_same_dtype(self, x, y)
        return typed(self, x.dtype, broadcast(self, x, y))

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x", "y"))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(), (args.node("x"), args.node("y")))


@dataclass(frozen=True)
class Add(Binary, name="add"):
    """x + y.  x, y: T[...] -> T[...], broadcast."""

    def eval(self, args: Arrays) -> Array:
        return args[0] + args[1]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return tuple(unbroadcast(dy, arg.type) for arg in y.args)


@dataclass(frozen=True)
class Sub(Binary, name="sub"):
    """x - y.  x, y: T[...] -> T[...], broadcast."""

    def eval(self, args: Arrays) -> Array:
        return args[0] - args[1]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        return unbroadcast(dy, a.type), unbroadcast(-dy, b.type)


@dataclass(frozen=True)
class Mul(Binary, name="mul"):
    """x · y.  x, y: T[...] -> T[...], broadcast.

    Times the scalar −1 reads as `neg`, which has no spelling of its own.
    """

    def eval(self, args: Arrays) -> Array:
        return args[0] * args[1]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        return unbroadcast(dy * b, a.type), unbroadcast(dy * a, b.type)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, y = args.node("x"), args.node("y")
        scalar = TensorType(x.type.dtype)
        if x.type.dtype.is_float and y.type == scalar and isinstance(y.op, Const):
            return -x if y.op.value == -1 else Node(cls(), (x, y))
        return Node(cls(), (x, y))


@dataclass(frozen=True)
class RealDiv(Binary, name="real_div"):
    """x / y.  x, y: F[...] -> F[...], broadcast."""

    def infer(self, args: Types) -> TensorType:
        result = super().infer(args)
        want_dtypes(self, result, FLOATS)
        return result

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return args[0] / args[1]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        return unbroadcast(dy / b, a.type), unbroadcast(-(dy * y / b), b.type)


@dataclass(frozen=True)
class Maximum(Binary, name="maximum"):
    """The larger of x and y; NaN where either is.  x, y: T[...] -> T[...], broadcast.

    At a tie the gradient goes to x.
    """

    def eval(self, args: Arrays) -> Array:
        return np.maximum(args[0], args[1])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        zero = const(0, dy.type.dtype)
        to_a = greater_equal(a, b)
        return (
            unbroadcast(select(to_a, dy, zero), a.type),
            unbroadcast(select(to_a, zero, dy), b.type),
        )


@dataclass(frozen=True)
class Pow(Op, name="pow"):
    """x to the constant power p; NaN for x < 0 unless p is a whole number.  F[...] -> F[...]."""

    p: float

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        if not math.isfinite(self.p):
            raise ShapeError(self.name, "the power is not finite", got=self.p)
        want_held(self, "the power", self.p, x.dtype)
        return x

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.power(args[0], np.asarray(self.p, args[0].dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        factor = const(self.p, x.type.dtype)
        if self.p == 0:
            return (dy * factor,)  # 0·x⁻¹ would be NaN at 0
        return (dy * factor * Node(Pow(held(self.p - 1, x.type.dtype)), (x,)),)

    def mil(self) -> MilCall:
        return MilCall("pow", ("x",), {"y": float(self.p)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, y = args.node("x"), args.node("y")
        if not isinstance(y.op, Const) or y.type.elements > 1 or y.type.rank > x.type.rank:
            raise MilError("pow", "the exponent is not a scalar constant", got=y.type)
        op = cls(float(y.op.value.item()))
        want_same_dtype(op, x.type, y.type)
        return Node(op, (x,))


@dataclass(frozen=True)
class GreaterEqual(Binary, name="greater_equal"):
    """Whether x ≥ y.  x, y: T[...] -> bool[...], broadcast.  No gradient: the result is a step."""

    def infer(self, args: Types) -> TensorType:
        return super().infer(args).with_dtype(DType.BOOL)

    def eval(self, args: Arrays) -> Array:
        return args[0] >= args[1]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None


@dataclass(frozen=True)
class Select(Op, name="select"):
    """a where cond, else b.  cond: bool[...], a, b: T[...] -> T[...], all three broadcast."""

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        cond, a, b = args
        want_dtypes(self, cond, (DType.BOOL,))
        want_dtypes(self, a, CHOSEN)
        want_same_dtype(self, a, b, "ab")
        return typed(self, a.dtype, broadcast(self, cond, a, b))

    def eval(self, args: Arrays) -> Array:
        return np.where(args[0], args[1], args[2])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        cond, a, b = y.args
        zero = const(0, dy.type.dtype)
        return (
            None,
            unbroadcast(select(cond, dy, zero), a.type),
            unbroadcast(select(cond, zero, dy), b.type),
        )

    def mil(self) -> MilCall:
        return MilCall("select", ("cond", "a", "b"))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(), (args.node("cond"), args.node("a"), args.node("b")))


def maximum(x: Node, y: Node) -> Node:
    """The larger of x and y."""
    return Node(Maximum(), (x, y))


def power(x: Node, p: float) -> Node:
    """X to the constant power p, which is rounded to x's type.

    Raises:
        ShapeError: x is a constant below zero and p is not whole: the result would be NaN.
    """
    if isinstance(x.op, Const) and not float(p).is_integer() and np.any(x.op.value < 0):
        raise ShapeError("pow", "NaN: a negative base", got=f"{x.op} to the power {p}")
    return Node(Pow(rounded("pow", p, x.type)), (x,))


def greater_equal(x: Node, y: Node) -> Node:
    """Whether x ≥ y."""
    return Node(GreaterEqual(), (x, y))


def select(cond: Node, a: Node, b: Node) -> Node:
    """A where cond, else b."""
    return Node(Select(), (cond, a, b))
