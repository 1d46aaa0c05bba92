"""Activations of converted models, beside those of the core and the gates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.arithmetic import greater_equal, select, unbroadcast
from orion_ane.ops.curve import Curve, sigmoid
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.foreign.parameters import near, times, want_own
from orion_ane.ops.foreign.unary import Abs
from orion_ane.ops.leaf import const
from orion_ane.ops.rules import FLOATS, want_count, want_dtypes, want_same_dtype
from orion_ane.ops.shape import reshape
from orion_ane.types import Array, TensorType


@dataclass(frozen=True)
class Relu6(Curve, name="relu6"):
    """x held between 0 and 6.  F[...] -> F[...].  The gradient passes inside, bounds included."""

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        return np.clip(x, np.zeros((), x.dtype), np.asarray(6, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (_inside(y.args[0], dy, 0, 6),)


@dataclass(frozen=True)
class Softplus(Curve, name="softplus"):
    """log(1 + exp x), without overflow.  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        return _softplus(args[0])

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * sigmoid(y.args[0]),)


@dataclass(frozen=True)
class Softsign(Curve, name="softsign"):
    """x / (1 + |x|).  F[...] -> F[...]."""

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        return x / (1 + np.abs(x))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        below = const(1, dy.type.dtype) + Node(Abs(), y.args)
        return (dy / (below * below),)


class Bent(Curve):
    """A curve with a number `alpha`, which may have a float type of its own."""

    alpha: float

    def infer(self, args: Types) -> TensorType:
        want_own(self, "alpha", self.alpha)
        return super().infer(args)

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x",), {"alpha": float(self.alpha)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.number("alpha")), (args.node("x"),))  # type: ignore[call-arg]


@dataclass(frozen=True)
class LeakyRelu(Bent, name="leaky_relu"):
    """x from 0 on, below it alpha · x.  F[...] -> F[...]."""

    alpha: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        return np.where(x >= 0, x, x * np.asarray(self.alpha, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (select(_is_positive(y.args[0]), dy, times(dy, self.alpha)),)


@dataclass(frozen=True)
class Elu(Bent, name="elu"):
    """x above 0, else alpha (exp x − 1).  F[...] -> F[...]."""

    alpha: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        low = np.expm1(np.minimum(x, np.zeros((), x.dtype)))
        return np.where(x > 0, x, low * np.asarray(self.alpha, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (select(_is_positive(y.args[0]), dy, dy * (y + near(self.alpha, y))),)


@dataclass(frozen=True)
class ThresholdedRelu(Bent, name="thresholded_relu"):
    """x from alpha on, else 0.  F[...] -> F[...]."""

    alpha: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        zero = np.zeros((), x.dtype)
        return np.where(x >= np.asarray(self.alpha, x.dtype), x, zero)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        return (select(greater_equal(x, near(self.alpha, x)), dy, const(0, dy.type.dtype)),)


class Bowed(Bent):
    """A curve with two numbers, `alpha` and `beta`."""

    beta: float

    def infer(self, args: Types) -> TensorType:
        want_own(self, "beta", self.beta)
        return super().infer(args)

    def mil(self) -> MilCall:
        numbers = {"alpha": float(self.alpha), "beta": float(self.beta)}
        return MilCall(self.name, ("x",), numbers)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        alpha, beta = args.number("alpha"), args.number("beta")
        return Node(cls(alpha, beta), (args.node("x"),))  # type: ignore[call-arg]

    def numbers(self, x: Array) -> tuple[Array, Array]:
        """Alpha and beta in x's type."""
        return np.asarray(self.alpha, x.dtype), np.asarray(self.beta, x.dtype)


@dataclass(frozen=True)
class ClampedRelu(Bowed, name="clamped_relu"):
    """The smaller of beta and x, which counts alpha times below 0.  F[...] -> F[...].

    The gradient passes up to beta, included.
    """

    alpha: float
    beta: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        alpha, beta = self.numbers(x)
        return np.minimum(np.where(x >= 0, x, x * alpha), beta)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        bent = Node(LeakyRelu(self.alpha), (x,))
        (slope,) = bent.op.grad(bent, dy)
        assert slope is not None
        below = greater_equal(near(self.beta, bent), bent)
        return (select(below, slope, const(0, dy.type.dtype)),)


@dataclass(frozen=True)
class LinearActivation(Bowed, name="linear_activation"):
    """alpha · x + beta.  F[...] -> F[...]."""

    alpha: float
    beta: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        alpha, beta = self.numbers(x)
        return alpha * x + beta

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (times(dy, self.alpha),)


@dataclass(frozen=True)
class ScaledTanh(Bowed, name="scaled_tanh"):
    """alpha · tanh(beta · x).  F[...] -> F[...]."""

    alpha: float
    beta: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        alpha, beta = self.numbers(x)
        return alpha * np.tanh(beta * x)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        bare = Node(ScaledTanh(1.0, self.beta), y.args)
        return (times(times(dy - dy * bare * bare, self.beta), self.alpha),)


@dataclass(frozen=True)
class SigmoidHard(Bowed, name="sigmoid_hard"):
    """alpha · x + beta, held between 0 and 1.  F[...] -> F[...].

    The gradient passes inside, bounds included.
    """

    alpha: float
    beta: float

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        alpha, beta = self.numbers(x)
        return np.clip(alpha * x + beta, np.zeros((), x.dtype), np.ones((), x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        line = Node(LinearActivation(self.alpha, self.beta), y.args)
        return (times(_inside(line, dy, 0, 1), self.alpha),)


class ByChannel(Op):
    """A row with x and vectors of one number for each channel, which is x's second axis."""

    vectors: tuple[str, ...] = ()

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 1 + len(self.vectors))
        x = args[0]
        want_dtypes(self, x, FLOATS)
        if not 3 <= x.rank <= 5:
            raise ShapeError(self.name, "rank does not fit", got=x, want="[N,C,*D], rank 3 to 5")
        for name, vector in zip(self.vectors, args[1:], strict=True):
            want_same_dtype(self, x, vector, f"x{name[0]}")
            if vector.shape != x.shape[1:2]:
                want = x.with_shape(x.shape[1:2])
                raise ShapeError(self.name, f"{name} does not fit", got=vector, want=want)
        return x

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x", *self.vectors))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        return Node(cls(), (x, *(fitted(args.node(name), x) for name in cls.vectors)))


@dataclass(frozen=True)
class Prelu(ByChannel, name="prelu"):
    """x above 0, else alpha · x, of each channel its own.  x: F[N,C,*D], alpha: F[C] -> F[...]."""

    vectors = ("alpha",)

    def eval(self, args: Arrays) -> Array:
        x, alpha = args
        return np.where(x > 0, x, x * by_channel(alpha, x.ndim))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x, alpha = y.args
        slope = of_channel(alpha, x.type.rank)
        low = select(_is_positive(x), const(0, dy.type.dtype), dy)
        return select(_is_positive(x), dy, dy * slope), gathered(low * x, slope, alpha)


@dataclass(frozen=True)
class SoftplusParametric(ByChannel, name="softplus_parametric"):
    """alpha · log(1 + exp(beta · x)), of each channel its own.

    x: F[N,C,*D], alpha and beta: F[C] -> F[...].
    """

    vectors = ("alpha", "beta")

    def eval(self, args: Arrays) -> Array:
        x, alpha, beta = args
        return by_channel(alpha, x.ndim) * _softplus(x * by_channel(beta, x.ndim))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x, *vectors = y.args
        alpha, beta = (of_channel(v, x.type.rank) for v in vectors)
        inner = x * beta
        slope = dy * alpha * sigmoid(inner)
        return (
            slope * beta,
            gathered(dy * Node(Softplus(), (inner,)), alpha, vectors[0]),
            gathered(slope * x, beta, vectors[1]),
        )


def by_channel(vector: Array, rank: int) -> Array:
    """A vector shaped to broadcast along the second axis."""
    return vector.reshape(-1, *(1,) * (rank - 2))


def of_channel(vector: Node, rank: int) -> Node:
    """`by_channel` of a node."""
    return reshape(vector, (*vector.type.shape, *(1,) * (rank - 2)))


def gathered(dy: Node, stretched: Node, vector: Node) -> Node:
    """The cotangent of a vector, given that of its `of_channel`, stretched."""
    return reshape(unbroadcast(dy, stretched.type), vector.type.shape)


def _softplus(x: Array) -> Array:
    with np.errstate(under="ignore"):
        return np.maximum(x, np.zeros((), x.dtype)) + np.log1p(np.exp(-np.abs(x)))


def _is_positive(x: Node) -> Node:
    """Whether x ≥ 0."""
    return greater_equal(x, const(0, x.type.dtype))


def _inside(x: Node, dy: Node, lo: float, hi: float) -> Node:
    """`dy` where x lies between the bounds, included."""
    zero, low, high = (near(value, x) for value in (0, lo, hi))
    return select(greater_equal(x, low), select(greater_equal(high, x), dy, zero), zero)
