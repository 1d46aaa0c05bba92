"""Norms over channels, images and neighbours; the layer norm has a module of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.curve import Rsqrt
from orion_ane.ops.foreign.activation import ByChannel, by_channel, gathered, of_channel
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.foreign.parameters import fp32, want_own
from orion_ane.ops.leaf import const
from orion_ane.ops.reduction import reduce_mean, reduce_sum
from orion_ane.ops.rules import FLOATS, unary, want_dtypes
from orion_ane.types import Array, TensorType

EPS, L2_EPS = 1e-5, 1e-6  # MIL's defaults


class ChannelNorm(ByChannel):
    """A norm whose scale and offset are of each channel its own."""

    eps: float

    def infer(self, args: Types) -> TensorType:
        want_own(self, "eps", self.eps)
        return super().infer(args)

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x", *self.vectors), {"epsilon": float(self.eps)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        eps = args.number("epsilon", fp32(EPS))
        found = (_vector(args, name, x) for name in cls.vectors)
        return Node(cls(eps), (x, *found))  # type: ignore[call-arg]


def _vector(args: MilArgs, name: str, x: Node) -> Node:
    """A vector of a number for each channel; gamma is ones unless given, beta zeros."""
    if name in args or name not in ("gamma", "beta") or x.type.rank < 2:
        return fitted(args.node(name), x)
    return const(np.full(x.type.shape[1], float(name == "gamma")), x.type.dtype)


@dataclass(frozen=True)
class BatchNorm(ChannelNorm, name="batch_norm"):
    """gamma (x - mean) / sqrt(variance + eps) + beta, all of each channel its own.

    x: F[N,C,*D], the others: F[C] -> F[N,C,*D].  No gradient but of x: a trained model's
    statistics are fixed.
    """

    eps: float
    vectors = ("mean", "variance", "gamma", "beta")

    def eval(self, args: Arrays) -> Array:
        x, *vectors = args
        mean, variance, gamma, beta = (by_channel(v, x.ndim) for v in vectors)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = gamma / np.sqrt(variance + np.asarray(self.eps, x.dtype))
            return (x - mean) * scale + beta

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        _, _, variance, gamma, _ = y.args
        scale = gamma * Node(Rsqrt(self.eps), (variance,))
        return dy * of_channel(scale, y.type.rank), None, None, None, None


@dataclass(frozen=True)
class InstanceNorm(ChannelNorm, name="instance_norm"):
    """gamma (x - mean) / sqrt(variance + eps) + beta, over each channel's image.

    x: F[N,C,*D], gamma and beta: F[C] -> F[N,C,*D].
    """

    eps: float
    vectors = ("gamma", "beta")

    def eval(self, args: Arrays) -> Array:
        x, gamma, beta = args
        axes = tuple(range(2, x.ndim))
        centred = x - x.mean(axis=axes, keepdims=True)
        variance = (centred * centred).mean(axis=axes, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = centred / np.sqrt(variance + np.asarray(self.eps, x.dtype))
        return plain * by_channel(gamma, x.ndim) + by_channel(beta, x.ndim)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x, gamma, beta = y.args
        rank = x.type.rank
        axes = tuple(range(2, rank))
        centred = x - reduce_mean(x, axes)
        scale = Node(Rsqrt(self.eps), (reduce_mean(centred * centred, axes),))
        plain, slope = centred * scale, of_channel(gamma, rank)
        inner = dy * slope
        # What moves an image as a whole, or stretches it, does not show in the result.
        seen = inner - reduce_mean(inner, axes) - plain * reduce_mean(inner * plain, axes)
        return scale * seen, gathered(dy * plain, slope, gamma), gathered(dy, slope, beta)


class NeighbourNorm(Op):
    """A norm without scale and offset: no curve, since each element looks at others."""

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        if x.rank < 3:
            raise ShapeError(self.name, "rank too low", got=x, want="at least 3")
        return x


@dataclass(frozen=True)
class L2Norm(NeighbourNorm, name="l2_norm"):
    """x / sqrt(sum of x² over the last three axes + eps).  F[...,C,H,W] -> F[...,C,H,W]."""

    eps: float

    def infer(self, args: Types) -> TensorType:
        want_own(self, "eps", self.eps)
        return super().infer(args)

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        total = (x * x).sum(axis=(-3, -2, -1), keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            return x / np.sqrt(total + np.asarray(self.eps, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        axes = (-3, -2, -1)
        scale = Node(Rsqrt(self.eps), (reduce_sum(x * x, axes),))
        return (scale * (dy - y * reduce_sum(dy * y, axes)),)

    def mil(self) -> MilCall:
        return MilCall("l2_norm", ("x",), {"epsilon": float(self.eps)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.number("epsilon", fp32(L2_EPS))), (args.node("x"),))


@dataclass(frozen=True)
class LocalResponseNorm(NeighbourNorm, name="local_response_norm"):
    """x / (k + alpha / size · sum of x² over `size` neighbouring channels) to the beta.

    x: F[N,C,*D] -> F[N,C,*D].  Of an even number of neighbours one more lies before.

    No gradient: models are trained with other norms.
    """

    size: int
    alpha: float
    beta: float
    k: float

    def infer(self, args: Types) -> TensorType:
        for name, value in (("alpha", self.alpha), ("beta", self.beta), ("k", self.k)):
            want_own(self, name, value)
        x = super().infer(args)
        if self.size < 1:
            raise ShapeError(self.name, "no neighbours", got=self.size, want="size from 1")
        return x

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        channels = x.shape[1]
        # A sum over a window is the difference of two sums from the first channel on.
        sums = np.cumsum(np.square(x, dtype=np.float64), axis=1)
        sums = np.concatenate([np.zeros_like(sums[:, :1]), sums], axis=1)
        at = np.arange(channels)
        last = np.minimum(at + (min(self.size, 2 * channels) - 1) // 2 + 1, channels)
        first = np.maximum(at - min(self.size, 2 * channels) // 2, 0)
        total = sums[:, last] - sums[:, first]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            scale = np.power(self.k + self.alpha / self.size * total, -self.beta)
        return (x * scale).astype(x.dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)

    def mil(self) -> MilCall:
        numbers = {"alpha": float(self.alpha), "beta": float(self.beta), "k": float(self.k)}
        return MilCall("local_response_norm", ("x",), {"size": self.size, **numbers})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        alpha, beta, k = args.number("alpha", fp32(1e-4)), args.number("beta", 0.75), 1.0
        return Node(cls(args.integer("size"), alpha, beta, args.number("k", k)), (args.node("x"),))
