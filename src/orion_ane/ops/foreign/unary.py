"""One operand, element by element: what converters write beside the curves of the core."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.arithmetic import greater_equal, select
from orion_ane.ops.curve import Curve, Rsqrt, exp
from orion_ane.ops.foreign.erf import error_function
from orion_ane.ops.foreign.parameters import as_type, near, own, times, want_own
from orion_ane.ops.leaf import const
from orion_ane.ops.rules import ARITHMETIC, unary, want_dtypes
from orion_ane.types import Array, DType, TensorType

INVERSE_EPS, LOG_EPS = 1e-4, 1e-45  # MIL's defaults; the second is 0 in fp16


class NumberCurve(Curve):
    """A curve that takes int32 too."""

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, ARITHMETIC)
        return x


class Step(Curve):
    """A curve without a slope."""

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


@dataclass(frozen=True)
class Abs(NumberCurve, name="abs"):
    """|x|; its slope at 0 is 0.  T[...] -> T[...]."""

    def eval(self, args: Arrays) -> Array:
        return np.abs(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * Node(Sign(), y.args),)


@dataclass(frozen=True)
class Sign(NumberCurve, Step, name="sign"):
    """-1, 0 or 1, as x is below, at or above 0.  T[...] -> T[...].  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.sign(args[0])


@dataclass(frozen=True)
class Square(NumberCurve, name="square"):
    """x².  T[...] -> T[...]."""

    def eval(self, args: Arrays) -> Array:
        return args[0] * args[0]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (times(dy * y.args[0], 2),)


@dataclass(frozen=True)
class Exp2(NumberCurve, name="exp2"):
    """2 to the x; of an integer the whole part.  T[...] -> T[...]."""

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        with np.errstate(over="ignore", under="ignore"):
            return as_type(np.exp2(x), x.dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (times(dy * y, math.log(2)),)


@dataclass(frozen=True)
class Ceil(Step, name="ceil"):
    """The least whole number that is no less than x.  F[...] -> F[...].  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.ceil(args[0])


@dataclass(frozen=True)
class Floor(Step, name="floor"):
    """The largest whole number that is no more than x.  F[...] -> F[...].  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.floor(args[0])


@dataclass(frozen=True)
class Round(Step, name="round"):
    """The nearest whole number, of two the even one.  F[...] -> F[...].  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.rint(args[0])


@dataclass(frozen=True)
class LogicalNot(Curve, name="logical_not"):
    """Whether x is false.  bool[...] -> bool[...].  No gradient: the result is a bool."""

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, (DType.BOOL,))
        return x

    def eval(self, args: Arrays) -> Array:
        return np.logical_not(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


# Circles and hyperbolas


@dataclass(frozen=True)
class Sin(Curve, name="sin"):
    """The sine.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return np.sin(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * Node(Cos(), y.args),)


@dataclass(frozen=True)
class Cos(Curve, name="cos"):
    """The cosine.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return np.cos(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (-(dy * Node(Sin(), y.args)),)


@dataclass(frozen=True)
class Tan(Curve, name="tan"):
    """The tangent.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return np.tan(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy + dy * y * y,)


@dataclass(frozen=True)
class Asin(Curve, name="asin"):
    """The arc sine; NaN outside -1 to 1.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return np.arcsin(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * Node(Rsqrt(0.0), (_below_one(y.args[0]),)),)


@dataclass(frozen=True)
class Acos(Curve, name="acos"):
    """The arc cosine; NaN outside -1 to 1.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore"):
            return np.arccos(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (-(dy * Node(Rsqrt(0.0), (_below_one(y.args[0]),))),)


@dataclass(frozen=True)
class Atan(Curve, name="atan"):
    """The arc tangent.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        return np.arctan(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        return (dy / (const(1, x.type.dtype) + x * x),)


@dataclass(frozen=True)
class Sinh(Curve, name="sinh"):
    """The hyperbolic sine.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(over="ignore"):
            return np.sinh(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * Node(Cosh(), y.args),)


@dataclass(frozen=True)
class Cosh(Curve, name="cosh"):
    """The hyperbolic cosine.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(over="ignore"):
            return np.cosh(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * Node(Sinh(), y.args),)


@dataclass(frozen=True)
class Atanh(Curve, name="atanh"):
    """The inverse of tanh; infinite at -1 and 1, NaN beyond.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.arctanh(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy / _below_one(y.args[0]),)


def _below_one(x: Node) -> Node:
    """1 − x²."""
    return const(1, x.type.dtype) - x * x


@dataclass(frozen=True)
class Erf(Curve, name="erf"):
    """The error function, (2/√π) ∫₀ˣ exp(-t²) dt.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        return error_function(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        return (times(dy * exp(-(x * x)), 2 / math.sqrt(math.pi)),)


# With a parameter


class Shifted(Curve):
    """A curve of x + eps, where eps may have a float type of its own."""

    eps: float

    def infer(self, args: Types) -> TensorType:
        want_own(self, "eps", self.eps)
        return super().infer(args)

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x",), {"epsilon": float(self.eps)})

    def moved(self, x: Array) -> Array:
        """x + eps."""
        return x + np.asarray(self.eps, x.dtype)


@dataclass(frozen=True)
class Log(Shifted, name="log"):
    """The natural logarithm of x + eps; -inf at 0, NaN below.  F[...] -> F[...]."""

    eps: float

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(self.moved(args[0]))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        return (dy / (x + near(self.eps, x)),)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        return Node(cls(own(args, "epsilon", x, LOG_EPS)), (x,))


@dataclass(frozen=True)
class Inverse(Shifted, name="inverse"):
    """1 / (x + eps).  F[...] -> F[...]."""

    eps: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        with np.errstate(divide="ignore"):
            return np.ones((), x.dtype) / self.moved(x)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (-(dy * y * y),)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        return Node(cls(own(args, "epsilon", x, INVERSE_EPS)), (x,))


@dataclass(frozen=True)
class Threshold(NumberCurve, name="threshold"):
    """The larger of x and alpha, a value of x's type.  T[...] -> T[...]."""

    alpha: float

    def infer(self, args: Types) -> TensorType:
        x = super().infer(args)
        want_own(self, "alpha", self.alpha)
        with np.errstate(over="ignore", invalid="ignore"):
            as_x = float(np.float64(self.alpha).astype(x.dtype.numpy))
        if as_x != self.alpha:
            raise ShapeError(self.name, f"alpha is not a value of {x.dtype}", got=self.alpha)
        return x

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        return np.maximum(x, np.asarray(self.alpha, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        return (select(greater_equal(near(self.alpha, x), x), const(0, x.type.dtype), dy),)

    def mil(self) -> MilCall:
        return MilCall("threshold", ("x",), {"alpha": float(self.alpha)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.number("alpha")), (args.node("x"),))
