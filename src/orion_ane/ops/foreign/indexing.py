"""Elements by index: gather and scatter, along an axis, by axes together, and by points.

An index that the axis does not have is memory safe, as MIL asks: a gather gives 0 there, a
scatter drops the update, and with `validate` a run is refused.  Up to iOS16 a negative index
counts from the end: the reader says so with ops of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.arithmetic import greater_equal, select
from orion_ane.ops.foreign.fill import zeros
from orion_ane.ops.leaf import Const, const
from orion_ane.ops.rules import axis_of, typed, want_count, want_dtypes, want_same_dtype
from orion_ane.ops.shape import cast
from orion_ane.types import Array, DType, TensorType

INDEX = (DType.INT32, DType.INT16, DType.UINT16, DType.INT8, DType.UINT8)
MODES = ("update", "add", "sub", "mul", "div", "max", "min")
_UFUNCS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
Shape: TypeAlias = tuple[int, ...]


class Way(Op):
    """How indices reach into a tensor: what gather and scatter of one kind share."""

    validate: bool

    @property
    def batch(self) -> int:
        """How many axes both have in front, of equal sizes."""
        return 0

    @abstractmethod
    def reached(self, x: TensorType, indices: TensorType) -> Shape:
        """The shape of what the indices reach.

        Raises:
            ShapeError: they do not fit.
        """

    @abstractmethod
    def places(self, shape: Shape, indices: Array) -> list[tuple[int, Array]]:
        """For each axis of a tensor the axis and the places on it, which broadcast."""

    @abstractmethod
    def wrapped(self, indices: Node, shape: Shape) -> Node:
        """The indices, negative ones counted from the end."""

    def addresses(self, shape: Shape, indices: Array) -> tuple[Array, Array]:
        """Where each element that is reached lies, row by row, and whether it does.

        Raises:
            ShapeError: one does not, and the op shall say so.
        """
        at, valid = np.zeros((), np.int64), np.ones((), np.bool_)
        for axis, places in self.places(shape, indices.astype(np.int64)):
            inside = (places >= 0) & (places < shape[axis])
            valid = valid & inside
            at = at + np.where(inside, places, 0) * prod(shape[axis + 1 :])
        if self.validate and not valid.all():
            raise ShapeError(self.name, "an index is out of range", want=f"places of {shape}")
        return at, np.broadcast_to(valid, at.shape)

    def fit(self, x: TensorType, indices: TensorType) -> TensorType:
        """The type of what the indices reach of x."""
        want_dtypes(self, indices, INDEX)
        return typed(self, x.dtype, self.reached(x, indices))

    def misfit(self, x: TensorType, indices: TensorType, want: str) -> ShapeError:
        """What is said of indices that do not fit."""
        got = f"indices {indices} for {x}"
        return ShapeError(self.name, "indices do not fit", got=got, want=want)

    def consts(self) -> dict[str, Literal]:
        """The parameters as MIL has them; what older opsets lack only where it is not usual."""
        batch = {"batch_dims": self.batch} if self.batch else {}
        return {**batch, **({"validate_indices": True} if self.validate else {})}


class OneAxis(Way):
    """Indices are places on one axis."""

    axis: int

    def wrapped(self, indices: Node, shape: Shape) -> Node:
        return _wrapped(indices, const(shape[self.axis], DType.INT32))

    def consts(self) -> dict[str, Literal]:
        return {"axis": self.axis, **super().consts()}


class AlongAxis(OneAxis):
    """Indices of x's rank replace the place on one axis."""

    def reached(self, x: TensorType, indices: TensorType) -> Shape:
        axis = axis_of(self, self.axis, x)
        ours, theirs = list(x.shape), list(indices.shape)
        if len(ours) != len(theirs) or [*ours[:axis], *ours[axis + 1 :]] != [
            *theirs[:axis],
            *theirs[axis + 1 :],
        ]:
            raise self.misfit(x, indices, f"equal sizes but on axis {axis}")
        return indices.shape

    def places(self, shape: Shape, indices: Array) -> list[tuple[int, Array]]:
        rank, axis = len(shape), self.axis % len(shape)
        return [(i, indices if i == axis else _line(shape[i], i, rank)) for i in range(rank)]


class ByAxis(OneAxis):
    """Indices of any rank stand in for one axis; the first axes may be shared."""

    def reached(self, x: TensorType, indices: TensorType) -> Shape:
        axis, batch = axis_of(self, self.axis, x), self.batch
        if not 0 <= batch <= min(axis, indices.rank) or x.shape[:batch] != indices.shape[:batch]:
            raise self.misfit(x, indices, f"{batch} equal axes before axis {axis}")
        return x.shape[:axis] + indices.shape[batch:] + x.shape[axis + 1 :]

    def places(self, shape: Shape, indices: Array) -> list[tuple[int, Array]]:
        axis, batch = self.axis % len(shape), self.batch
        own = indices.shape[batch:]
        rank = len(shape) - 1 + len(own)
        behind = len(shape) - 1 - axis
        spread = (*indices.shape[:batch], *(1,) * (axis - batch), *own, *(1,) * behind)
        before = [(i, _line(shape[i], i, rank)) for i in range(axis)]
        after = [(i, _line(shape[i], i - 1 + len(own), rank)) for i in range(axis + 1, len(shape))]
        return [*before, (axis, indices.reshape(spread)), *after]


class ByPoint(Way):
    """The last axis of the indices holds places on axes behind those that are shared."""

    def reached(self, x: TensorType, indices: TensorType) -> Shape:
        batch = self.batch
        depth = indices.shape[-1] if indices.rank else 0
        if (
            not 0 <= batch < indices.rank
            or batch + depth > x.rank
            or x.shape[:batch] != indices.shape[:batch]
        ):
            raise self.misfit(x, indices, f"{batch} equal axes, then points of at most x's axes")
        return indices.shape[:-1] + x.shape[batch + depth :]

    def places(self, shape: Shape, indices: Array) -> list[tuple[int, Array]]:
        batch, depth = self.batch, indices.shape[-1]
        behind = len(shape) - batch - depth
        spread = (*indices.shape[:-1], *(1,) * behind)
        rank = len(spread)
        points = [(batch + j, indices[..., j].reshape(spread)) for j in range(depth)]
        before = [(i, _line(shape[i], i, rank)) for i in range(batch)]
        after = [
            (i, _line(shape[i], i - len(shape) + rank, rank))
            for i in range(batch + depth, len(shape))
        ]
        return [*before, *points, *after]

    def wrapped(self, indices: Node, shape: Shape) -> Node:
        sizes = shape[self.batch :][: indices.type.shape[-1]]
        return _wrapped(indices, const(sizes, DType.INT32))


class Gathering(Way):
    """x at the indices."""

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        return self.fit(*args)

    def eval(self, args: Arrays) -> Array:
        x, indices = args
        at, valid = self.addresses(x.shape, indices)
        found = x.reshape(-1)[at]
        return found if valid.all() else np.where(valid, found, np.zeros((), x.dtype))

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x", "indices"), self.consts())


class Scattering(Way):
    """data changed by updates at the indices, one update after the other."""

    mode: str

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        data, indices, updates = args
        if self.mode not in MODES:
            raise ShapeError(self.name, "no such mode", got=self.mode, want=MODES)
        if data.dtype is DType.BOOL or (self.mode == "div" and not data.dtype.is_float):
            raise ShapeError(self.name, "element type not supported", got=data)
        want_same_dtype(self, data, updates, "du")
        want = self.fit(data, indices)
        if updates != want:
            raise ShapeError(self.name, "updates do not fit", got=updates, want=want)
        return data

    def eval(self, args: Arrays) -> Array:
        data, indices, updates = args
        at, valid = self.addresses(data.shape, indices)
        result = data.copy().reshape(-1)
        if self.mode == "update":
            result[at[valid]] = updates[valid]
        else:
            with np.errstate(all="ignore"):
                _UFUNCS[self.mode].at(result, at[valid], updates[valid])
        return result.reshape(data.shape)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        if self.mode not in ("add", "sub"):
            return None, None, None
        taken = Node(self.gathering(), (dy, y.args[1]))
        return dy, None, taken if self.mode == "add" else -taken

    @abstractmethod
    def gathering(self) -> Gathering:
        """The row that takes what this one changes."""

    def mil(self) -> MilCall:
        consts = {**self.consts(), "mode": self.mode}
        return MilCall(self.name, ("data", "indices", "updates"), consts)


@dataclass(frozen=True)
class Gather(ByAxis, Gathering, name="gather"):
    """x at the indices on `axis`, 0 where there is no such place.

    x: T[...], indices: I[...] -> T[x's sizes, the indices' own sizes in the place of axis].
    No gradient through indices, nor to x with `batch_dims`: MIL's scatter has none.
    """

    axis: int = 0
    batch_dims: int = 0
    validate: bool = False

    @property
    def batch(self) -> int:
        return self.batch_dims

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        if self.batch_dims:
            return None, None
        x, indices = y.args
        return Node(Scatter("add", self.axis), (zeros(x.type), indices, dy)), None

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(args.integer("axis", 0), args.integer("batch_dims", 0), _validate(args))
        return _read(op, args, "x")


@dataclass(frozen=True)
class GatherAlongAxis(AlongAxis, Gathering, name="gather_along_axis"):
    """x at the place on `axis` that each index names, 0 where there is none.

    x: T[...], indices: I[... of x but on axis] -> T[indices].  No gradient through indices.
    """

    axis: int = 0
    validate: bool = False

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x, indices = y.args
        return Node(ScatterAlongAxis("add", self.axis), (zeros(x.type), indices, dy)), None

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return _read(cls(args.integer("axis", 0), _validate(args)), args, "x")


@dataclass(frozen=True)
class GatherNd(ByPoint, Gathering, name="gather_nd"):
    """x at the points that the indices' last axis holds, 0 where there is no such point.

    x: T[B, D, R], indices: I[B, K, d] -> T[B, K, R], each a list of sizes, d as many as D has.
    No gradient through indices, nor to x with `batch_dims`: MIL's scatter_nd has none.
    """

    batch_dims: int = 0
    validate: bool = False

    @property
    def batch(self) -> int:
        return self.batch_dims

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        if self.batch_dims:
            return None, None
        x, indices = y.args
        return Node(ScatterNd("add"), (zeros(x.type), indices, dy)), None

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return _read(cls(args.integer("batch_dims", 0), _validate(args)), args, "x")


@dataclass(frozen=True)
class Scatter(ByAxis, Scattering, name="scatter"):
    """data with updates at the indices on `axis`; those that have no place are dropped.

    data: T[...], indices: I[...], updates: T[as gather gives] -> T[data].
    No gradient through indices, nor but for the modes add and sub: the others keep one of many.
    """

    mode: str = "add"
    axis: int = 0
    validate: bool = False

    def gathering(self) -> Gathering:
        return Gather(self.axis)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(args.text("mode", "add"), args.integer("axis", 0), _validate(args))
        return _read(op, args, "data", "updates")


@dataclass(frozen=True)
class ScatterAlongAxis(AlongAxis, Scattering, name="scatter_along_axis"):
    """data with updates at the place on `axis` that each index names; others are dropped.

    data: T[...], indices: I[... of data but on axis], updates: T[indices] -> T[data].
    No gradient through indices, nor but for the modes add and sub: the others keep one of many.
    """

    mode: str = "add"
    axis: int = 0
    validate: bool = False

    def gathering(self) -> Gathering:
        return GatherAlongAxis(self.axis)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(args.text("mode", "add"), args.integer("axis", 0), _validate(args))
        return _read(op, args, "data", "updates")


@dataclass(frozen=True)
class ScatterNd(ByPoint, Scattering, name="scatter_nd"):
    """data with updates at the points that the indices' last axis holds; others are dropped.

    data: T[D, R], indices: I[K, d], updates: T[K, R] -> T[data], each a list of sizes.
    No gradient through indices, nor but for the modes add and sub: the others keep one of many.
    """

    mode: str = "add"
    validate: bool = False

    def gathering(self) -> Gathering:
        return GatherNd()

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return _read(cls(args.text("mode", "add"), _validate(args)), args, "data", "updates")


def _line(size: int, axis: int, rank: int) -> Array:
    """0 to size - 1 on one axis of `rank`."""
    return np.arange(size).reshape([size if i == axis else 1 for i in range(rank)])


def _validate(args: MilArgs) -> bool:
    return args.flag("validate_indices", default=False)


def _read(op: Way, args: MilArgs, x: str, *updates: str) -> Node:
    indices = args.node("indices")
    nodes = [args.node(x), indices, *(args.node(name) for name in updates)]
    op.fit(nodes[0].type, indices.type)
    if args.opset < 17:
        nodes[1] = op.wrapped(indices, nodes[0].type.shape)
    return Node(op, tuple(nodes))


def _wrapped(indices: Node, size: Node) -> Node:
    if indices.type.dtype.value.startswith("u"):
        return indices
    if isinstance(indices.op, Const) and isinstance(size.op, Const):
        value = indices.op.value.astype(np.int64)
        wrapped = np.where(value < 0, value + size.op.value, value)
        return const(wrapped, DType.INT32) if np.any(value < 0) else indices
    wide = indices if indices.type.dtype is DType.INT32 else cast(indices, DType.INT32)
    return select(greater_equal(wide, const(0, DType.INT32)), wide, wide + size)
