"""Slices with strides, at a place that is known when they run, and slices that are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.foreign.fill import zeros
from orion_ane.ops.foreign.indexing import INDEX
from orion_ane.ops.leaf import Const, const
from orion_ane.ops.rules import front, unary, want_count, want_dtypes, want_same_dtype
from orion_ane.ops.shape import Slice, reshape
from orion_ane.types import Array, DType, TensorType

Ints: TypeAlias = tuple[int, ...]
Flags: TypeAlias = tuple[bool, ...]
MASKS = ("begin_mask", "end_mask", "squeeze_mask")


@dataclass(frozen=True)
class StridedSlice(Op, name="strided_slice", mil=""):
    """count elements on each axis, from begin on, stride apart; a negative stride walks back.

    x: T[...] -> T[count].  Spelled `slice_by_index`, as `slice` is, which has no strides: some
    stride is not 1 here, and where one element is taken it is.
    """

    begin: tuple[int, ...]
    count: tuple[int, ...]
    stride: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        walks = (self.begin, self.count, self.stride)
        if any(len(walk) != x.rank for walk in walks) or any(
            n < 1 or not s or not (0 <= b < size and 0 <= b + (n - 1) * s < size)
            for b, n, s, size in zip(*walks, x.shape, strict=True)
        ):
            got = f"{self.count} from {self.begin} by {self.stride} of x {x}"
            raise ShapeError(self.name, "walks do not fit", got=got, want="places of x")
        if self.stride != steps(self.stride, self.count) or set(self.stride) <= {1}:
            raise ShapeError(
                self.name, "not a stride", got=self.stride, want="some, where it steps"
            )
        return x.with_shape(self.count)

    def eval(self, args: Arrays) -> Array:
        return args[0][self.slices()]

    def slices(self) -> tuple[slice, ...]:
        """What numpy takes."""
        walks = zip(self.begin, self.ends(), self.stride, strict=True)
        return tuple(slice(b, None if e < 0 else e, s) for b, e, s in walks)

    def ends(self) -> tuple[int, ...]:
        """The first place behind on each axis; -1 before the first of all."""
        walks = zip(self.begin, self.count, self.stride, strict=True)
        return tuple(max(b + n * s, -1) for b, n, s in walks)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        (x,) = y.args
        ends = (
            const(self.begin, DType.INT32),
            const([max(e, 0) for e in self.ends()], DType.INT32),
        )
        kept = (False,) * x.type.rank
        op = SliceUpdate(self.stride, kept, tuple(e < 0 for e in self.ends()), kept)
        return (Node(op, (zeros(x.type), dy, *ends)),)

    def mil(self) -> MilCall:
        ends = self.ends()
        return MilCall(
            "slice_by_index",
            ("x",),
            {
                "begin": self.begin,
                "end": tuple(max(end, 0) for end in ends),
                "end_mask": tuple(end < 0 for end in ends),
                "stride": self.stride,
            },
        )

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return _read_slice(args)


@dataclass(frozen=True)
class SliceBySize(Op, name="slice_by_size"):
    """size elements on each axis from a place on that is known when it runs, held inside x.

    x: T[...], begin: I[rank] -> T[size].  A negative place counts from the end.  A place that is
    constant reads as `slice`.  No gradient: MIL adds no slice at a place that it does not know.
    """

    size: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        x, begin = args
        want_dtypes(self, begin, INDEX)
        if begin.shape != (x.rank,) or len(self.size) != x.rank:
            got = f"begin {begin} and size {self.size} for x {x}"
            raise ShapeError(self.name, "one for each axis", got=got, want=x.rank)
        if any(not 1 <= n <= size for n, size in zip(self.size, x.shape, strict=True)):
            raise ShapeError(self.name, "size does not fit", got=f"{self.size} of x {x}")
        return x.with_shape(self.size)

    def eval(self, args: Arrays) -> Array:
        x, begin = args
        room = np.subtract(x.shape, self.size)
        wide = begin.astype(np.int64)
        first = np.clip(np.where(wide < 0, wide + x.shape, wide), 0, room).tolist()
        return x[tuple(slice(b, b + n) for b, n in zip(first, self.size, strict=True))]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None

    def mil(self) -> MilCall:
        return MilCall("slice_by_size", ("x", "begin"), {"size": self.size})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, begin, size = args.node("x"), args.node("begin"), args.integers("size")
        if begin.type.shape != (x.type.rank,) or len(size) != x.type.rank:
            raise MilError(args.op, "one for each axis", got=size, want=f"axes of {x.type}")
        if not isinstance(begin.op, Const):
            return Node(cls(size), (x, begin))
        want_dtypes(cls(size), begin.type, INDEX)
        starts = begin.op.value.tolist()
        firsts = [b + n if b < 0 else b for b, n in zip(starts, x.type.shape, strict=True)]
        ends = [
            n if count == -1 else b + count
            for b, count, n in zip(firsts, size, x.type.shape, strict=True)
        ]
        return Node(Slice(tuple(firsts), tuple(ends)), (x,))


@dataclass(frozen=True)
class SliceUpdate(Op, name="slice_update"):
    """x with update in the place of a slice, which begins where `begin` says, as far as it reaches.

    x: T[...], update: T[sizes of the slice], begin, end: I[rank] -> T[x].  How far is said by
    update's sizes, which `end` repeats.  What lies outside x is dropped.
    No gradient to an update whose place is not constant: MIL has no strided slice at such a one.
    """

    stride: tuple[int, ...]
    begin_mask: tuple[bool, ...]
    end_mask: tuple[bool, ...]
    squeeze_mask: tuple[bool, ...]

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 4)
        x, update, begin, end = args
        want_same_dtype(self, x, update, "xu")
        lists = (self.stride, self.begin_mask, self.end_mask, self.squeeze_mask)
        if any(len(values) != x.rank for values in lists) or not all(self.stride):
            raise ShapeError(
                self.name, "strides or masks do not fit", got=lists, want=f"axes of {x}"
            )
        for ends in (begin, end):
            want_dtypes(self, ends, INDEX)
            if ends.shape != (x.rank,):
                raise ShapeError(self.name, "one for each axis", got=ends, want=x.rank)
        kept = [n for n, gone in zip(x.shape, self.squeeze_mask, strict=True) if not gone]
        if len(kept) != update.rank:
            raise ShapeError(self.name, "update does not fit", got=f"{update} in x {x}")
        for n, m, s in zip(x.shape, self.spread(update.shape), self.stride, strict=True):
            if (m - 1) * abs(s) >= n or (m == 1 and abs(s) != 1):
                got = f"{update} by {self.stride} in x {x}"
                raise ShapeError(self.name, "update does not fit", got=got)
        return x

    def eval(self, args: Arrays) -> Array:
        x, update, begin, _ = args
        first, stride = begin.astype(np.int64), np.array(self.stride, np.int64)
        first = np.where(first < 0, first + x.shape, first)
        first = np.where(self.begin_mask, np.where(stride > 0, 0, np.array(x.shape) - 1), first)
        spread = self.spread(update.shape)
        walks = [b + s * np.arange(m) for b, s, m in zip(first, stride, spread, strict=True)]
        inside = [(walk >= 0) & (walk < n) for walk, n in zip(walks, x.shape, strict=True)]
        places = np.ix_(*(walk[held] for walk, held in zip(walks, inside, strict=True)))
        result = x.copy()
        result[places] = update.reshape(spread)[np.ix_(*inside)]
        return result

    def spread(self, shape: Ints) -> Ints:
        """The update's shape with 1 on the axes that are squeezed."""
        sizes = iter(shape)
        return tuple(1 if gone else next(sizes, 1) for gone in self.squeeze_mask)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        _, update, begin, end = y.args
        rest = Node(self, (dy, zeros(update.type), begin, end))
        if not isinstance(begin.op, Const):
            return rest, None, None, None
        x = y.type
        masked = zip(begin.op.value.tolist(), x.shape, self.stride, self.begin_mask, strict=True)
        first = tuple((0 if s > 0 else n - 1) if m else b % n for b, n, s, m in masked)
        taken = sliced(dy, first, self.spread(update.type.shape), self.stride)
        return rest, reshape(taken, update.type.shape), None, None

    def mil(self) -> MilCall:
        consts = {"stride": self.stride, **{key: getattr(self, key) for key in MASKS}}
        return MilCall("slice_update", ("x", "update", "begin", "end"), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, update, *ends = (args.node(name) for name in ("x", "update", "begin", "end"))
        rank = x.type.rank
        masks = tuple(args.flags(key, (False,) * rank) for key in MASKS)
        stride = args.integers("stride", (1,) * rank)
        known = [tuple(node.op.value.ravel()) for node in ends if isinstance(node.op, Const)]
        if len(known) == 2:
            begin, end = (tuple(int(place) for place in places) for places in known)
            walk = _walks(args.op, x.type, (begin, end, stride), masks)
            if walk.kept != update.type.shape:
                raise MilError(args.op, "update does not fit", got=update.type, want=walk.kept)
            ends[0] = const(walk.begin, DType.INT32) if walk.begin != begin else ends[0]
            masks = ((False,) * rank, *masks[1:]) if walk.begin != begin else masks
        sizes = cls(stride, *masks).spread(update.type.shape)
        if len(sizes) == len(stride):  # where one element is taken, the direction is left
            pairs = zip(sizes, stride, strict=True)
            stride = tuple(max(-1, min(s, 1)) if m == 1 else s for m, s in pairs)
        return Node(cls(stride, *masks), (x, update, *ends))


@dataclass(frozen=True)
class _Walk:
    """Places on each axis: from where, how many, how far apart; and the sizes that are kept."""

    begin: tuple[int, ...]
    count: tuple[int, ...]
    kept: tuple[int, ...]


def _walks(where: str, x: TensorType, ends: Sequence[Ints], masks: Sequence[Flags]) -> _Walk:
    """The places of `begin`, `end`, `stride`, clamped to the axis as Python's slices are."""
    names = ("begin", "end", "stride", *MASKS)
    for key, values in zip(names, (*ends, *masks), strict=True):
        if len(values) != x.rank:
            raise MilError(where, f"{key} does not fit", got=values, want=f"axes of {x}")
    if not all(ends[2]):
        raise MilError(where, "a stride is 0", got=ends[2])
    walks: list[range] = []
    for b, e, s, no_begin, no_end, squeeze, n in zip(*ends, *masks, x.shape, strict=True):
        open_end = no_end or squeeze  # a squeeze takes one, whatever `end`
        walk = range(n)[slice(None if no_begin else b, None if open_end else e, s)]
        walks.append(walk[:1] if squeeze else walk)
    count = tuple(map(len, walks))
    kept = tuple(n for n, gone in zip(count, masks[2], strict=True) if not gone)
    return _Walk(tuple(walk[0] if walk else 0 for walk in walks), count, kept)


def steps(stride: Ints, count: Ints) -> Ints:
    """The strides, 1 where one element is taken."""
    return tuple(1 if n == 1 else s for s, n in zip(stride, count, strict=True))


def sliced(x: Node, begin: Ints, count: Ints, stride: Ints) -> Node:
    """The slice: without strides where they are all 1."""
    stride = steps(stride, count)
    if set(stride) <= {1}:
        return Node(Slice(begin, tuple(b + n for b, n in zip(begin, count, strict=True))), (x,))
    return Node(StridedSlice(begin, count, stride), (x,))


def _read_slice(args: MilArgs) -> Node:
    """`slice_by_index` at constant places."""
    x = args.node("x")
    rank = x.type.rank
    stride = args.integers("stride", (1,) * rank)
    if set(stride) <= {1}:
        return Slice.read(args)
    masks = [args.flags(key, (False,) * rank) for key in MASKS]
    walk = _walks(args.op, x.type, (args.integers("begin"), args.integers("end"), stride), masks)
    y = sliced(x, walk.begin, walk.count, stride)
    return reshape(y, walk.kept) if any(masks[2]) else y


def _read_reverse(args: MilArgs) -> Node:
    """`reverse`, which is a slice that walks back."""
    x = args.node("x")
    sizes = x.type.shape
    given = args.integers("axes") if "axes" in args else tuple(range(len(sizes)))
    axes = front(given, x.type)
    if any(not 0 <= axis < len(sizes) for axis in axes):
        raise MilError(args.op, "no such axis", got=f"{given} for x {x.type}")
    stride = tuple(-1 if axis in axes else 1 for axis in range(len(sizes)))
    begin = tuple(n - 1 if s < 0 else 0 for n, s in zip(sizes, stride, strict=True))
    return sliced(x, begin, sizes, stride)


Op.readers["slice_by_index"] = _read_slice
Op.readers["reverse"] = _read_reverse
