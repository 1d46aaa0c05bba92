"""One operand, same type: a curve applied to each element."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.arithmetic import greater_equal, select
from orion_ane.ops.leaf import const
from orion_ane.ops.rules import FLOATS, held, rounded, unary, want_dtypes, want_held
from orion_ane.types import Array, DType, TensorType

RSQRT_EPS = 1e-12  # MIL's default; in fp16 it is 0 (MIL reference, 3)


class Curve(Op):
    """A row with the float operand x, whose result has x's type."""

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        return x

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x",))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(), (args.node("x"),))


@dataclass(frozen=True)
class Relu(Curve, name="relu"):
    """The larger of x and 0.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        return np.maximum(args[0], np.zeros((), args[0].dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        zero = const(0, dy.type.dtype)
        return (select(greater_equal(zero, y.args[0]), zero, dy),)  # x > 0, else nothing


@dataclass(frozen=True)
class Tanh(Curve, name="tanh"):
    """tanh x.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        return np.tanh(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy - dy * y * y,)


@dataclass(frozen=True)
class Sigmoid(Curve, name="sigmoid"):
    """1 / (1 + exp(-x)), stable on both sides of 0.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        e = np.exp(-np.abs(x))  # never overflows
        return np.where(x >= 0, 1, e) / (1 + e)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * (y - y * y),)


@dataclass(frozen=True)
class Exp(Curve, name="exp"):
    """e to the x; overflows fp16 above 11.09.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * y,)


@dataclass(frozen=True)
class Sqrt(Curve, name="sqrt"):
    """The square root; NaN below 0.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return np.sqrt(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * const(0.5, y.type.dtype) * rsqrt(y.args[0], 0.0),)


@dataclass(frozen=True)
class Rsqrt(Curve, name="rsqrt"):
    """(x + eps) to the -1/2.  F[...] -> F[...].

    eps is always written out.  It is a value of fp32, also where x is fp16: MIL lets it have a
    type of its own since iOS17, and converted programs use that.
    """

    eps: float

    def infer(self, args: Types) -> TensorType:
        if not math.isfinite(self.eps):
            raise ShapeError(self.name, "eps is not finite", got=self.eps)
        want_held(self, "eps", self.eps, DType.FP32)
        return super().infer(args)

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1 / np.sqrt(args[0] + np.asarray(self.eps, args[0].dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * const(-0.5, y.type.dtype) * y * y * y,)

    def mil(self) -> MilCall:
        return MilCall("rsqrt", ("x",), {"epsilon": float(self.eps)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        default = held(RSQRT_EPS, x.type.dtype) if x.type.dtype.is_float else 0.0
        return Node(cls(args.number("epsilon", default)), (x,))


@dataclass(frozen=True)
class Neg(Curve, name="neg", mil=""):
    """-x.  F[...] -> F[...].  In no MIL opset: spelled `mul(x, -1)`."""

    def eval(self, args: Arrays) -> Array:
        return -args[0]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (-dy,)

    def mil(self) -> MilCall:
        return MilCall("mul", ("x",), {"y": -1.0})


@dataclass(frozen=True)
class Clip(Curve, name="clip"):
    """x held between lo and hi.  F[...] -> F[...].  The gradient passes inside, bounds included."""

    lo: float
    hi: float

    def infer(self, args: Types) -> TensorType:
        if not self.lo < self.hi:
            raise ShapeError(self.name, "empty range", got=(self.lo, self.hi), want="lo < hi")
        x = super().infer(args)
        want_held(self, "lo", self.lo, x.dtype)
        want_held(self, "hi", self.hi, x.dtype)
        return x

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        return np.clip(x, np.asarray(self.lo, x.dtype), np.asarray(self.hi, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        zero, lo, hi = (const(value, x.type.dtype) for value in (0, self.lo, self.hi))
        below_hi = select(greater_equal(hi, x), dy, zero)
        return (select(greater_equal(x, lo), below_hi, zero),)

    def mil(self) -> MilCall:
        return MilCall("clip", ("x",), {"alpha": float(self.lo), "beta": float(self.hi)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.number("alpha"), args.number("beta")), (args.node("x"),))


def relu(x: Node) -> Node:
    """The larger of x and 0."""
    return Node(Relu(), (x,))


def tanh(x: Node) -> Node:
    """Tanh x."""
    return Node(Tanh(), (x,))


def sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x))."""
    return Node(Sigmoid(), (x,))


def exp(x: Node) -> Node:
    """E to the x."""
    return Node(Exp(), (x,))


def sqrt(x: Node) -> Node:
    """The square root."""
    return Node(Sqrt(), (x,))


def rsqrt(x: Node, eps: float) -> Node:
    """(x + eps) to the -1/2, with eps rounded to x's type.

    Raises:
        ShapeError: eps vanishes in x's type, as 1e-8 does in fp16.
    """
    near = rounded("rsqrt", eps, x.type)
    if near == 0 != eps:
        raise ShapeError(
            "rsqrt", f"eps vanishes in {x.type.dtype}", got=eps, hint="scale x up, or cast it"
        )
    return Node(Rsqrt(near), (x,))


def clip(x: Node, lo: float, hi: float) -> Node:
    """X held between lo and hi, which are rounded to x's type."""
    return Node(Clip(rounded("clip", lo, x.type), rounded("clip", hi, x.type)), (x,))
