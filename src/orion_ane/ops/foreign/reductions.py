"""Axes that shrink to one, beside the sum, the mean and the largest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.curve import exp
from orion_ane.ops.foreign.parameters import as_type, times
from orion_ane.ops.foreign.unary import Sign
from orion_ane.ops.reduction import ReduceMean, Reduction, reduce_sum, stretch
from orion_ane.ops.rules import ARITHMETIC, axis_of, unary, want_dtypes
from orion_ane.ops.shape import reshape
from orion_ane.types import Array, DType, TensorType


@dataclass(frozen=True)
class ReduceMin(Reduction, name="reduce_min"):
    """The smallest over `axes`, each kept with size 1.  x: T[...] -> T[..1..].

    No gradient: as that of reduce_max, it serves as a shift.
    """

    def eval(self, args: Arrays) -> Array:
        return args[0].min(axis=self.axes, keepdims=True)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


@dataclass(frozen=True)
class ReduceProd(Reduction, name="reduce_prod"):
    """The product over `axes`, each kept with size 1.  x: T[...] -> T[..1..].

    The gradient is NaN where an element is 0.
    """

    def eval(self, args: Arrays) -> Array:
        return args[0].prod(axis=self.axes, keepdims=True, dtype=args[0].dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * y / y.args[0],)


@dataclass(frozen=True)
class ReduceL1Norm(Reduction, name="reduce_l1_norm"):
    """The sum of absolute values over `axes`, each kept with size 1.  x: T[...] -> T[..1..]."""

    def eval(self, args: Arrays) -> Array:
        return np.abs(args[0]).sum(axis=self.axes, keepdims=True, dtype=args[0].dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * Node(Sign(), y.args),)


@dataclass(frozen=True)
class ReduceL2Norm(Reduction, name="reduce_l2_norm"):
    """The root of the sum of squares over `axes`, each kept with size 1.  x: T[...] -> T[..1..].

    Of integers the whole part.  The gradient is NaN where all elements are 0.
    """

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        wide = _wide(x)
        return as_type(np.sqrt((wide * wide).sum(axis=self.axes, keepdims=True)), x.dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * y.args[0] / y,)


@dataclass(frozen=True)
class ReduceSumSquare(Reduction, name="reduce_sum_square"):
    """The sum of squares over `axes`, each kept with size 1.  x: T[...] -> T[..1..]."""

    def eval(self, args: Arrays) -> Array:
        return (args[0] * args[0]).sum(axis=self.axes, keepdims=True, dtype=args[0].dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (times(dy * y.args[0], 2),)


@dataclass(frozen=True)
class ReduceLogSum(Reduction, name="reduce_log_sum"):
    """The logarithm of the sum over `axes`, each kept with size 1.  x: T[...] -> T[..1..].

    Of integers the whole part.
    """

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        with np.errstate(divide="ignore", invalid="ignore"):
            return as_type(np.log(_wide(x).sum(axis=self.axes, keepdims=True)), x.dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        return (stretch(dy / reduce_sum(x, self.axes), x.type),)


@dataclass(frozen=True)
class ReduceLogSumExp(Reduction, name="reduce_log_sum_exp"):
    """The logarithm of the sum of exp x over `axes`, each kept with size 1.

    x: T[...] -> T[..1..].  Shifted by the largest element, so that nothing overflows.  Of
    integers the whole part.
    """

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        wide = _wide(x)
        top = wide.max(axis=self.axes, keepdims=True)
        shift = np.where(np.isfinite(top), top, np.zeros((), wide.dtype))
        with np.errstate(divide="ignore", under="ignore", over="ignore"):
            total = np.exp(wide - shift).sum(axis=self.axes, keepdims=True)
            return as_type(np.log(total) + shift, x.dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy * exp(y.args[0] - y),)


@dataclass(frozen=True)
class MeanOfWhole(Reduction, name="mean_of_whole", mil=""):
    """The mean of integers over `axes`, cut towards 0, each kept with size 1.

    x: int32[...] -> int32[..1..].  No gradient: of integers.
    """

    def infer(self, args: Types) -> TensorType:
        want_dtypes(self, unary(self, args), (DType.INT32,))
        return super().infer(args)

    def eval(self, args: Arrays) -> Array:
        return as_type(args[0].mean(axis=self.axes, keepdims=True), args[0].dtype)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)

    def mil(self) -> MilCall:
        return MilCall("reduce_mean", ("x",), {"axes": self.axes, "keep_dims": True})


def read_mean(args: MilArgs) -> Node:
    """MIL's `reduce_mean`, of floats or of integers."""
    row = ReduceMean if args.node("x").type.dtype.is_float else MeanOfWhole
    return row.read(args)


Op.readers["reduce_mean"] = read_mean


class Place(Op):
    """A row that says where along `axis` something is; that axis is kept with size 1."""

    axis: int
    to: DType

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, ARITHMETIC)
        axis = axis_of(self, self.axis, x)
        if self.to not in (DType.INT32, DType.UINT16):
            raise ShapeError(self.name, "not a type of places", got=self.to, want="int32, uint16")
        limit = np.iinfo(self.to.numpy).max
        if x.shape[axis] - 1 > limit:
            raise ShapeError(self.name, f"does not fit {self.to}", got=x, want=f"at most {limit}")
        return x.with_shape((*x.shape[:axis], 1, *x.shape[axis + 1 :])).with_dtype(self.to)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)

    def mil(self) -> MilCall:
        where: dict[str, Literal] = {"axis": self.axis, "keep_dims": True}
        return MilCall(self.name, ("x",), {**where, "output_dtype": str(self.to)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, axis = args.node("x"), args.integer("axis", -1)
        word = args.text("output_dtype", "int32")
        if word not in ("int32", "uint16"):
            raise MilError(args.op, "no such output_dtype", got=word, want="int32 or uint16")
        keep_dims = args.flag("keep_dims", default=False)
        y = Node(cls(axis, DType(word)), (x,))  # type: ignore[call-arg]
        if keep_dims:
            return y
        gone = axis % x.type.rank
        return reshape(y, (*y.type.shape[:gone], *y.type.shape[gone + 1 :]))


@dataclass(frozen=True)
class ReduceArgmax(Place, name="reduce_argmax"):
    """The first place of the largest along `axis`, kept with size 1.  x: T[...] -> to[..1..].

    No gradient: a step.
    """

    axis: int
    to: DType = DType.INT32

    def eval(self, args: Arrays) -> Array:
        return np.argmax(args[0], axis=self.axis, keepdims=True).astype(self.to.numpy)


@dataclass(frozen=True)
class ReduceArgmin(Place, name="reduce_argmin"):
    """The first place of the smallest along `axis`, kept with size 1.  x: T[...] -> to[..1..].

    No gradient: a step.
    """

    axis: int
    to: DType = DType.INT32

    def eval(self, args: Arrays) -> Array:
        return np.argmin(args[0], axis=self.axis, keepdims=True).astype(self.to.numpy)


def _wide(x: Array) -> Array:
    """Integers as float64, which holds them."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)
