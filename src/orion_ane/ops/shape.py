"""What moves elements without computing: reshape, transpose, cast, slice, pad, concat."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.rules import (
    FLOATS,
    axis_of,
    front,
    typed,
    unary,
    want_dtypes,
    want_rank,
    want_same_dtype,
)
from orion_ane.types import Array, DType, TensorType


@dataclass(frozen=True)
class Reshape(Op, name="reshape"):
    """The same elements, row by row, in another shape.  x: T[...] -> T[shape]."""

    shape: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_rank(self, self.shape)  # before any product: the list may be long and hostile
        if min(self.shape, default=1) < 1:
            raise ShapeError(self.name, "sizes start at 1", got=f"x {x} to {list(self.shape)}")
        if prod(self.shape) != x.elements:
            raise ShapeError(self.name, "counts differ", got=f"x {x} to {list(self.shape)}")
        return typed(self, x.dtype, self.shape)

    def eval(self, args: Arrays) -> Array:
        return args[0].reshape(self.shape)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (reshape(dy, y.args[0].type.shape),)

    def mil(self) -> MilCall:
        return MilCall("reshape", ("x",), {"shape": self.shape})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, written = args.node("x"), args.integers("shape")
        want_rank(cls(written), written)
        if written.count(-1) > 1 or min(written, default=0) < -1:
            raise MilError("reshape", "not a shape", got=written, want="sizes, 0 or one -1")
        # 0 copies an axis: by position up to iOS16, from the right since (MIL reference, 3).
        shift = x.type.rank - len(written)
        if 0 in written and shift and args.opset < 17:
            raise MilError("reshape", "0 copies no axis", got=written, want=f"rank of {x.type}")
        copied = [x.type.shape[i + shift] if i + shift >= 0 else 1 for i in range(len(written))]
        shape = [size or copied[i] for i, size in enumerate(written)]
        if -1 in shape:
            rest = -prod(shape)
            shape[shape.index(-1)] = max(x.type.elements // rest, 1)
        return Node(cls(tuple(shape)), (x,))


@dataclass(frozen=True)
class Transpose(Op, name="transpose"):
    """Axis i of the result is axis perm[i] of x.  x: T[...] -> T[permuted]."""

    perm: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        axes = tuple(axis_of(self, axis, x) for axis in self.perm)
        if sorted(axes) != list(range(x.rank)):
            raise ShapeError(self.name, "not a permutation", got=self.perm, want=f"axes of {x}")
        return x.with_shape(tuple(x.shape[axis] for axis in axes))

    def eval(self, args: Arrays) -> Array:
        return args[0].transpose(self.perm)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        rank = len(self.perm)
        return (transpose(dy, tuple(int(i) for i in np.argsort([p % rank for p in self.perm]))),)

    def mil(self) -> MilCall:
        return MilCall("transpose", ("x",), {"perm": self.perm})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.integers("perm")), (args.node("x"),))


@dataclass(frozen=True)
class Cast(Op, name="cast"):
    """x in another element type: floats round to nearest even, floats to integers truncate.

    x: T[...] -> to[...].  What an integer type does not hold saturates and NaN becomes 0, so
    that every machine agrees.  The gradient of a float is cast back.  No gradient through
    integers and bools.
    """

    to: DType

    def infer(self, args: Types) -> TensorType:
        if self.to is DType.UINT32:
            raise ShapeError(self.name, "MIL does not cast to this type", got=self.to)
        return unary(self, args).with_dtype(self.to)

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        if x.dtype.kind == "f" and self.to.numpy.kind in "iu":
            held = np.iinfo(self.to.numpy)
            x = np.clip(np.nan_to_num(x.astype(np.float64), nan=0.0), held.min, held.max)
        with np.errstate(over="ignore"):
            return x.astype(self.to.numpy)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x = y.args[0].type.dtype
        return (cast(dy, x) if x.is_float and self.to.is_float else None,)

    def mil(self) -> MilCall:
        return MilCall("cast", ("x",), {"dtype": str(self.to)})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        name = args.text("dtype")
        if name not in {dtype.value for dtype in DType}:
            raise MilError("cast", "no such dtype", got=name, want=[str(d) for d in DType])
        return Node(cls(DType(name)), (args.node("x"),))


@dataclass(frozen=True)
class Identity(Op, name="identity"):
    """x itself, under a name of its own.  x: T[...] -> T[...]."""

    def infer(self, args: Types) -> TensorType:
        return unary(self, args)

    def eval(self, args: Arrays) -> Array:
        return args[0]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (dy,)

    def mil(self) -> MilCall:
        return MilCall("identity", ("x",))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(), (args.node("x"),))


@dataclass(frozen=True)
class Slice(Op, name="slice", mil="slice_by_index"):
    """x from begin to end on each axis.  x: T[...] -> T[end - begin].

    Bounds are stored as they are after negative ones and masks are resolved.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        bounds = tuple(zip(self.begin, self.end, strict=False))
        fits = len(self.begin) == len(self.end) == x.rank
        if not fits or any(not 0 <= b < e <= n for (b, e), n in zip(bounds, x.shape, strict=True)):
            raise ShapeError(
                self.name,
                "bounds do not fit",
                got=f"{self.begin} to {self.end} of x {x}",
                want="0 <= begin < end <= size on each axis",
            )
        return x.with_shape(tuple(e - b for b, e in bounds))

    def eval(self, args: Arrays) -> Array:
        return args[0][tuple(slice(b, e) for b, e in zip(self.begin, self.end, strict=True))]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x = y.args[0].type.shape
        return (pad(dy, self.begin, tuple(n - e for n, e in zip(x, self.end, strict=True))),)

    def mil(self) -> MilCall:
        return MilCall("slice_by_index", ("x",), {"begin": self.begin, "end": self.end})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        rank = x.type.rank
        keys = ("begin_mask", "end_mask", "squeeze_mask")
        masks = [args.flags(key, (False,) * rank) for key in keys]
        begin, end = args.integers("begin"), args.integers("end")
        stride = args.integers("stride", (1,) * rank)
        for key, values in zip(
            (*keys, "begin", "end", "stride"), (*masks, begin, end, stride), strict=True
        ):
            if len(values) != rank:
                raise MilError(args.op, f"{key} does not fit", got=values, want=f"axes of {x.type}")
        firsts, lasts, kept = [], [], []
        for b, e, s, n, no_begin, no_end, squeeze in zip(
            begin, end, stride, x.type.shape, *masks, strict=True
        ):
            if s != 1 and not squeeze:
                raise MilError(args.op, "strided", got=stride, want="stride 1")
            # Python's slices clamp to the axis, as MIL's do; a squeeze takes one, whatever `end`.
            open_end = no_end or squeeze
            first, last, _ = slice(None if no_begin else b, None if open_end else e).indices(n)
            firsts.append(first)
            lasts.append(first + 1 if squeeze else last)
            kept += [] if squeeze else [last - first]
        y = Node(cls(tuple(firsts), tuple(lasts)), (x,))
        return reshape(y, tuple(kept)) if any(masks[2]) else y


@dataclass(frozen=True)
class Pad(Op, name="pad"):
    """x with zeros before and after on each axis.  x: F[...] -> F[sizes grow]."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        fits = len(self.before) == len(self.after) == x.rank
        if not fits or min((*self.before, *self.after), default=0) < 0:
            raise ShapeError(
                self.name,
                "amounts do not fit",
                got=f"{self.before} and {self.after} for x {x}",
                want="two amounts from 0 on each axis",
            )
        grown = zip(self.before, x.shape, self.after, strict=True)
        return typed(self, x.dtype, tuple(b + n + a for b, n, a in grown))

    def eval(self, args: Arrays) -> Array:
        amounts = tuple(zip(self.before, self.after, strict=True))
        return np.pad(args[0], amounts) if amounts else args[0]

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        x = y.args[0].type.shape
        ends = tuple(b + n for b, n in zip(self.before, x, strict=True))
        return (slice_by_index(dy, self.before, ends),)

    def mil(self) -> MilCall:
        amounts = tuple(n for pair in zip(self.before, self.after, strict=True) for n in pair)
        return MilCall("pad", ("x",), {"pad": amounts, "mode": "constant", "constant_val": 0.0})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x = args.node("x")
        mode, fill = args.text("mode", "constant"), args.number("constant_val", 0.0)
        if mode != "constant" or fill != 0:
            raise MilError("pad", "only zeros are padded", got=f"mode {mode} of {fill}")
        amounts = args.integers("pad")
        if len(amounts) % 2 or len(amounts) > 2 * x.type.rank:
            raise MilError("pad", "amounts do not fit", got=amounts, want=f"pairs for {x.type}")
        lead = (0,) * (x.type.rank - len(amounts) // 2)  # fewer pairs pad the last axes
        return Node(cls(lead + amounts[::2], lead + amounts[1::2]), (x,))


@dataclass(frozen=True)
class Concat(Op, name="concat"):
    """Operands one after the other along `axis`.  T[...], … -> T[sizes add on axis].

    Refused by the paper's first limit; reported to run once `interleave` is written out.
    """

    axis: int

    def infer(self, args: Types) -> TensorType:
        if not args:
            raise ShapeError(self.name, "wrong number of operands", got=0, want="at least 1")
        first = args[0]
        axis = axis_of(self, self.axis, first)
        for other in args[1:]:
            want_same_dtype(self, first, other)
            ours, theirs = list(first.shape), list(other.shape)
            if (
                len(theirs) != len(ours)
                or ours[:axis] + ours[axis + 1 :] != theirs[:axis] + theirs[axis + 1 :]
            ):
                raise ShapeError(
                    self.name,
                    "sizes differ",
                    got=f"{first} and {other}",
                    want=f"equal sizes but on axis {axis}",
                )
        joined = list(first.shape)
        joined[axis] = sum(arg.shape[axis] for arg in args)
        return typed(self, first.dtype, tuple(joined))

    def eval(self, args: Arrays) -> Array:
        return np.concatenate(args, axis=self.axis)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        axis = self.axis % y.type.rank
        cuts, start = [], 0
        for arg in y.args:
            begin, end = [0] * y.type.rank, list(y.type.shape)
            begin[axis], end[axis] = start, start + arg.type.shape[axis]
            start = end[axis]
            cuts.append(slice_by_index(dy, tuple(begin), tuple(end)))
        return tuple(cuts)

    def mil(self) -> MilCall:
        return MilCall("concat", ("values*",), {"axis": self.axis, "interleave": False})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        if args.flag("interleave", default=False):
            raise MilError("concat", "interleaved", want="interleave false")
        return Node(cls(args.integer("axis")), args.nodes("values"))


def read_split(args: MilArgs) -> tuple[Node, ...]:
    """MIL's `split`, whose results are slices here: one node, one value."""
    x = args.node("x")
    (axis,) = front((args.integer("axis"),), x.type)
    if not 0 <= axis < x.type.rank:
        raise MilError("split", "no such axis", got=f"{axis} for x {x.type}")
    size = x.type.shape[axis]
    if "split_sizes" in args:
        sizes = args.integers("split_sizes")
        count = len(sizes)
        if "num_splits" in args and args.integer("num_splits") != len(sizes):
            raise MilError("split", "num_splits and split_sizes disagree", got=sizes)
    else:
        count = args.integer("num_splits")
        if count < 1 or size % count:
            raise MilError("split", "does not divide", got=f"{size} by {count}")
        sizes = (size // count,) * min(count, args.results)
    if count != args.results:
        raise MilError("split", "wrong number of results", got=args.results, want=count)
    if sum(sizes) != size or min(sizes, default=0) < 1:
        raise MilError("split", "sizes do not add up", got=sizes, want=f"axis {axis} of {x.type}")
    parts, start = [], 0
    for n in sizes:
        begin, end = [0] * x.type.rank, list(x.type.shape)
        begin[axis], end[axis] = start, start + n
        start += n
        parts.append(slice_by_index(x, tuple(begin), tuple(end)))
    return tuple(parts)


Op.readers["split"] = read_split


def reshape(x: Node, shape: tuple[int, ...]) -> Node:
    """The same elements in another shape."""
    return Node(Reshape(tuple(shape)), (x,))


def transpose(x: Node, perm: tuple[int, ...]) -> Node:
    """Axis i of the result is axis perm[i] of x."""
    return Node(Transpose(tuple(perm)), (x,))


def cast(x: Node, to: DType) -> Node:
    """X in another element type."""
    return Node(Cast(to), (x,))


def identity(x: Node) -> Node:
    """X itself, under a name of its own."""
    return Node(Identity(), (x,))


def slice_by_index(x: Node, begin: tuple[int, ...], end: tuple[int, ...]) -> Node:
    """X from begin to end on each axis."""
    return Node(Slice(tuple(begin), tuple(end)), (x,))


def pad(x: Node, before: tuple[int, ...], after: tuple[int, ...]) -> Node:
    """X with zeros before and after on each axis."""
    return Node(Pad(tuple(before), tuple(after)), (x,))


def concat(*parts: Node, axis: int) -> Node:
    """Operands one after the other along `axis`; a negative axis counts from the end."""
    axes = front((axis,), parts[0].type) if parts else (axis,)
    return Node(Concat(*axes), parts)
