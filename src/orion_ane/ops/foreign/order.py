"""Elements in order: topk, argsort, and sequences turned around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.foreign.fill import zeros
from orion_ane.ops.foreign.indexing import INDEX, ScatterAlongAxis
from orion_ane.ops.rules import axis_of, front, unary, want_count, want_dtypes
from orion_ane.types import Array, DType, TensorType


def ordered(x: Array, axis: int, *, ascending: bool) -> Array:
    """Where the elements lie in order; of equal ones the first comes first, NaN is the largest."""
    if ascending:
        return np.argsort(x, axis=axis, kind="stable")
    turned = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(turned, axis)


class Top(Op):
    """A result of `topk`: the k largest elements on an axis, or the smallest, in order."""

    k: int
    axis: int
    ascending: bool
    to: DType

    def top(self, x: TensorType) -> TensorType:
        """The type of the values."""
        if self.to not in (DType.INT32, DType.UINT16):
            raise ShapeError(self.name, "no such type of indices", got=self.to)
        if x.dtype is DType.BOOL:
            raise ShapeError(self.name, "element type not supported", got=x, want="numbers")
        axis = axis_of(self, self.axis, x)
        if not 1 <= self.k <= x.shape[axis]:
            got = f"{self.k} on axis {axis} of x {x}"
            raise ShapeError(self.name, "k does not fit", got=got, want=f"1 to {x.shape[axis]}")
        return x.with_shape((*x.shape[:axis], self.k, *x.shape[axis + 1 :]))

    def places(self, x: Array) -> Array:
        """Where they lie on the axis."""
        kept = [slice(None)] * x.ndim
        kept[self.axis] = slice(self.k)
        return ordered(x, self.axis, ascending=self.ascending)[tuple(kept)]

    def mil(self) -> MilCall:
        fields = (self.k, self.axis, self.ascending, self.to)
        consts: dict[str, Literal] = {"k": self.k, "axis": self.axis, "ascending": self.ascending}
        if self.to is not DType.INT32:
            consts["output_indices_dtype"] = str(self.to)
        return MilCall("topk", ("x",), consts, (TopkValues(*fields), TopkIndices(*fields)))

    @classmethod
    def read(cls, args: MilArgs) -> Node | tuple[Node, ...]:
        x, axis, k = args.node("x"), args.integer("axis", -1), args.integer("k", 1)
        (at,) = front((axis,), x.type)
        if k == -1 and 0 <= at < x.type.rank:
            k = x.type.shape[at]
        ascending = args.flag("ascending", default=False)
        args.flag("sort", default=True)  # false allows any order: this one too
        to = args.text("output_indices_dtype", "int32")
        if to not in ("int32", "uint16"):
            raise MilError("topk", "no such dtype of indices", got=to, want="int32 or uint16")
        values = Node(TopkValues(k, axis, ascending, DType(to)), (x,))
        if not args.flag("return_indices", default=True):
            return values
        return values, Node(TopkIndices(k, axis, ascending, DType(to)), (x,))


@dataclass(frozen=True)
class TopkValues(Top, name="topk_values", mil="topk"):
    """The k largest elements on `axis`, or the smallest, in order.  x: T[...] -> T[k on axis].

    `to` is the type of the indices beside them.
    """

    k: int
    axis: int
    ascending: bool
    to: DType = DType.INT32

    def infer(self, args: Types) -> TensorType:
        return self.top(unary(self, args))

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        return np.take_along_axis(x, self.places(x), self.axis)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        places = Node(TopkIndices(self.k, self.axis, self.ascending, self.to), (x,))
        return (Node(ScatterAlongAxis("add", self.axis), (zeros(x.type), places, dy)),)


@dataclass(frozen=True)
class TopkIndices(Top, name="topk_indices", mil=""):
    """Where the k largest elements on `axis` lie, or the smallest, in order.

    x: T[...] -> to[k on axis].  Of equal elements the first comes first.
    """

    k: int
    axis: int
    ascending: bool
    to: DType = DType.INT32

    def infer(self, args: Types) -> TensorType:
        return self.top(unary(self, args)).with_dtype(self.to)

    def eval(self, args: Arrays) -> Array:
        return self.places(args[0]).astype(self.to.numpy)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)


@dataclass(frozen=True)
class Argsort(Op, name="argsort"):
    """Where the elements on `axis` lie, in order: of equal ones the first comes first.

    x: T[...] -> int32[...].  No gradient: the result is a step.
    """

    axis: int
    ascending: bool

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        axis_of(self, self.axis, x)
        return x.with_dtype(DType.INT32)

    def eval(self, args: Arrays) -> Array:
        return ordered(args[0], self.axis, ascending=self.ascending).astype(np.int32)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,)

    def mil(self) -> MilCall:
        return MilCall("argsort", ("x",), {"axis": self.axis, "ascending": self.ascending})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(args.integer("axis", -1), args.flag("ascending", default=False))
        return Node(op, (args.node("x"),))


@dataclass(frozen=True)
class ReverseSequence(Op, name="reverse_sequence"):
    """x with the first lengths[i] elements on seq_axis turned around, for place i on batch_axis.

    x: T[...], lengths: I[sizes of batch_axis] -> T[...].  No gradient through lengths.
    """

    seq_axis: int
    batch_axis: int

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        x, lengths = args
        want_dtypes(self, lengths, INDEX)
        batch = axis_of(self, self.batch_axis, x)
        if axis_of(self, self.seq_axis, x) == batch:
            raise ShapeError(self.name, "an axis is given twice", got=f"{batch} of x {x}")
        if lengths.shape != (x.shape[batch],):
            got = f"lengths {lengths} for x {x}"
            raise ShapeError(self.name, "lengths do not fit", got=got, want=f"one on axis {batch}")
        return x

    def eval(self, args: Arrays) -> Array:
        x, lengths = args
        seq, batch = self.seq_axis % x.ndim, self.batch_axis % x.ndim
        line = np.arange(x.shape[seq]).reshape([-1 if i == seq else 1 for i in range(x.ndim)])
        wide = np.clip(lengths.astype(np.int64), 0, x.shape[seq])
        upto = wide.reshape([-1 if i == batch else 1 for i in range(x.ndim)])
        places = np.broadcast_to(np.where(line < upto, upto - 1 - line, line), x.shape)
        return np.take_along_axis(x, places, seq)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return Node(self, (dy, y.args[1])), None  # it is its own reverse

    def mil(self) -> MilCall:
        consts = {"seq_axis": self.seq_axis, "batch_axis": self.batch_axis}
        return MilCall("reverse_sequence", ("x", "lengths"), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(args.integer("seq_axis", 0), args.integer("batch_axis", 0))
        return Node(op, (args.node("x"), args.node("lengths")))
