"""Values too wide for a device, computed in pieces: a slice is pulled through the op that makes it.

Nothing is joined that does not fit.  A piece of a product is a product of pieces, a piece of a
softmax shares the largest score and the sum with the others, and a sum over the wide axis adds
those of the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from orion_ane.ir import Node
from orion_ane.ops import (
    concat,
    const,
    conv1x1,
    exp,
    matmul,
    maximum,
    reduce_max,
    reduce_sum,
    reshape,
    slice_by_index,
)
from orion_ane.ops.arithmetic import Binary, Pow, Select
from orion_ane.ops.curve import Curve
from orion_ane.ops.foreign.binary import Minimum
from orion_ane.ops.foreign.reductions import ReduceMin
from orion_ane.ops.leaf import Const, Weight
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum, Reduction, Softmax
from orion_ane.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from orion_ane.types import MAX_RANK, TensorType

ROW = 32
"""Pieces are a multiple of so many values long where they may be: whole rows of fp16."""
KERNEL_RANK = 4


class UnsplitError(Exception):
    """A value that no rule here computes in pieces."""


@dataclass(frozen=True)
class Caps:
    """What a device takes.

    Attributes:
        axes: how long each axis of a value of that rank may be.
        reads: how many channels a convolution may read.
    """

    axes: Callable[[int], tuple[int, ...]]
    reads: int

    def wide(self, of: TensorType) -> tuple[int, ...]:
        """The axes that are too long."""
        pairs = zip(of.shape, self.axes(of.rank), strict=True)
        return tuple(axis for axis, (size, most) in enumerate(pairs) if size > most)

    @property
    def longest(self) -> int:
        """What every axis of every value may be."""
        return min(self.axes(MAX_RANK))


def bounds(size: int, most: int) -> list[tuple[int, int]]:
    """Stretches of an axis, each of at most `most`, of about one length."""
    step = -(-size // -(-size // most))
    step = min(-(-step // ROW) * ROW, most)
    return [(start, min(start + step, size)) for start in range(0, size, step)]


class Splitter:
    """The values of a graph as they fit; nodes are to be given operands first."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.value: dict[Node, Node] = {}
        self._fitting: dict[TensorType, bool] = {}
        self._pieces: dict[tuple[Node, int, int, int], Node | None] = {}
        self._scales: dict[Node, tuple[Node, Node]] = {}

    def fits(self, of: TensorType) -> bool:
        """Whether a value of this type may be; a program has few types."""
        if of not in self._fitting:
            self._fitting[of] = not self.caps.wide(of)
        return self._fitting[of]

    def add(self, node: Node) -> None:
        """Settle a node whose operands are settled."""
        args = tuple(self.value[arg] for arg in node.args)
        self.value[node] = node if args == node.args else node.on(args)
        if not self.fits(node.type):
            self._prepare(node)
        elif self._reads_too_much(node):
            try:
                self.value[node] = self._gathered(node)
            except UnsplitError:
                return

    def _reads_too_much(self, node: Node) -> bool:
        if isinstance(node.op, Conv1x1) and node.args[0].type.shape[1] > self.caps.reads:
            return True
        return not all(self.fits(arg.type) for arg in node.args)

    def _prepare(self, node: Node) -> None:
        """Make the pieces while those of the operands are at hand, so that no recursion is deep."""
        axis = self.caps.wide(node.type)[0]
        try:
            for begin, end in bounds(node.type.shape[axis], self.caps.longest):
                self.piece(node, axis, begin, end)
        except UnsplitError:
            return

    def piece(self, node: Node, axis: int, begin: int, end: int) -> Node:
        """The part of a value from begin to end on an axis.

        Raises:
            UnsplitError: there is no way to compute it alone.
        """
        if self.fits(node.type):
            return _cut(self.value[node], axis, begin, end)
        key = (node, axis, begin, end)
        if key not in self._pieces:
            self._pieces[key] = None  # should it fail, so that it is not tried again
            found = self.pulled(node, axis, begin, end)
            self._pieces[key] = found if self.fits(found.type) else None
        made = self._pieces[key]
        if made is None:
            raise UnsplitError
        return made

    def pulled(self, node: Node, axis: int, begin: int, end: int) -> Node:
        """The op that makes a value, on what its piece needs of the operands.

        Raises:
            UnsplitError: no rule here does.
        """
        op, args, rank = node.op, node.args, node.type.rank
        match op:
            case Const():
                where = (slice(None),) * axis + (slice(begin, end),)
                return const(op.value[where], node.type.dtype)
            case Weight():
                return self._part_of_file(node.type, op, axis, begin, end)
            case Curve() | Binary() | Pow() | Select() | Cast() | Identity():
                return node.on(tuple(self._stretched(x, rank, axis, begin, end) for x in args))
            case Softmax(axis=along) if along % rank == axis:
                return self._share(node, axis, begin, end)
            case Softmax() | Reduction():
                return node.on((self.piece(args[0], axis, begin, end),))
            case Transpose(perm=perm):
                return node.on((self.piece(args[0], perm[axis] % rank, begin, end),))
            case Reshape():
                x = self.piece(args[0], _same_axis(node.type, axis, args[0].type), begin, end)
                return reshape(x, _with(node.type.shape, axis, end - begin))
            case Matmul():
                return self._product(node, axis, begin, end)
            case Conv1x1() if axis == 1:
                return conv1x1(self.value[args[0]], self.piece(args[1], 0, begin, end))
            case Conv1x1():
                return conv1x1(self.piece(args[0], axis, begin, end), self.value[args[1]])
            case Concat() | Slice() | Pad():
                return self._moved(node, axis, begin, end)
        raise UnsplitError

    def _part_of_file(self, of: TensorType, op: Weight, axis: int, begin: int, end: int) -> Node:
        """A piece of a weight, which is read by the same bytes as a kernel if that fits."""
        if of.rank > KERNEL_RANK:
            raise UnsplitError
        shape = (*of.shape, 1, 1)[:KERNEL_RANK]
        kernel = Node(replace(op, of=of.with_shape(shape)))
        if not self.fits(kernel.type):
            raise UnsplitError
        return reshape(_cut(kernel, axis, begin, end), _with(of.shape, axis, end - begin))

    def _stretched(self, x: Node, rank: int, axis: int, begin: int, end: int) -> Node:
        """An operand's piece, where it is not one value for the whole axis."""
        at = axis - (rank - x.type.rank)
        if at < 0 or x.type.shape[at] == 1:
            return self.value[x]
        return self.piece(x, at, begin, end)

    def _share(self, node: Node, axis: int, begin: int, end: int) -> Node:
        """A piece of a softmax along the wide axis."""
        (x,) = node.args
        if node not in self._scales:
            parts = self._all(x, axis, self.caps.longest)
            top = reduce(maximum, (reduce_max(part, (axis,)) for part in parts))
            total = _sum(reduce_sum(exp(part - top), (axis,)) for part in parts)
            self._scales[node] = top, total
        top, total = self._scales[node]
        return exp(self.piece(x, axis, begin, end) - top) / total

    def _all(self, x: Node, axis: int, most: int) -> list[Node]:
        return [self.piece(x, axis, b, e) for b, e in bounds(x.type.shape[axis], most)]

    def _product(self, node: Node, axis: int, begin: int, end: int) -> Node:
        x, y = node.args
        assert isinstance(node.op, Matmul)
        rank = node.type.rank
        if axis == rank - 2:
            rows = x.type.rank - (1 if node.op.tx else 2)
            return node.on((self.piece(x, rows, begin, end), self.value[y]))
        if axis == rank - 1:
            columns = y.type.rank - (2 if node.op.ty else 1)
            return node.on((self.value[x], self.piece(y, columns, begin, end)))
        return node.on(tuple(self._stretched(arg, rank, axis, begin, end) for arg in node.args))

    def _moved(self, node: Node, axis: int, begin: int, end: int) -> Node:
        """A piece of what is joined, cut or padded."""
        op, args, rank = node.op, node.args, node.type.rank
        match op:
            case Concat(axis=along) if along % rank == axis:
                parts, start = [], 0
                for arg in args:
                    size = arg.type.shape[axis]
                    first, last = max(begin - start, 0), min(end - start, size)
                    if first < last:
                        parts.append(self.piece(arg, axis, first, last))
                    start += size
                return concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
            case Concat():
                return node.on(tuple(self.piece(arg, axis, begin, end) for arg in args))
            case Slice(begin=firsts, end=lasts):
                shift = firsts[axis]
                x = self.piece(args[0], axis, begin + shift, end + shift)
                lasts = _with(lasts, axis, end - begin)
                return slice_by_index(x, _with(firsts, axis, 0), lasts)
            case Pad(before=before, after=after) if not before[axis] and not after[axis]:
                return node.on((self.piece(args[0], axis, begin, end),))
        raise UnsplitError

    def _gathered(self, node: Node) -> Node:
        """A value that fits, of operands that do not."""
        op, args = node.op, node.args
        match op:
            case ReduceSum() | ReduceMax() | ReduceMin() | ReduceMean():
                return self._folded(node, op)
            case Matmul():
                x, y = args
                inner = x.type.rank - (2 if op.tx else 1), y.type.rank - (1 if op.ty else 2)
                pairs = zip(*map(self._all, args, inner, (self.caps.longest,) * 2), strict=True)
                return _sum(matmul(a, b, tx=op.tx, ty=op.ty) for a, b in pairs)
            case Conv1x1():
                is_there = all(self.fits(arg.type) for arg in args)
                longest = self.caps.axes(4)[1] if is_there else self.caps.longest
                most = min(longest, self.caps.reads)
                pairs = zip(*(self._all(arg, 1, most) for arg in args), strict=True)
                return _sum(conv1x1(x, w) for x, w in pairs)
            case Reshape() | Transpose() | Slice():
                return self._joined(node)
        raise UnsplitError

    def _joined(self, node: Node) -> Node:
        """The pieces along one axis, one after the other."""
        shape = node.type.shape
        for axis in sorted(range(len(shape)), key=lambda i: -shape[i]):
            stretches = bounds(shape[axis], self.caps.longest)
            try:
                parts = [self.pulled(node, axis, begin, end) for begin, end in stretches]
            except UnsplitError:
                continue
            return concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
        raise UnsplitError

    def _folded(self, node: Node, op: Reduction) -> Node:
        (x,) = node.args
        axis = self.caps.wide(x.type)[0]
        if axis not in {i % x.type.rank for i in op.axes}:
            raise UnsplitError
        parts = self._all(x, axis, self.caps.longest)
        folds = [Node(op, (part,)) for part in parts]
        if isinstance(op, ReduceMax):
            return reduce(maximum, folds)
        if isinstance(op, ReduceMin):
            return reduce(lambda x, y: Node(Minimum(), (x, y)), folds)
        if isinstance(op, ReduceMean):
            shares = (part.type.shape[axis] / x.type.shape[axis] for part in parts)
            pairs = zip(folds, shares, strict=True)
            return _sum(fold * const(share, x.type.dtype) for fold, share in pairs)
        return _sum(folds)


def _sum(parts: Iterable[Node]) -> Node:
    return reduce(Node.__add__, parts)


def _cut(x: Node, axis: int, begin: int, end: int) -> Node:
    if (begin, end) == (0, x.type.shape[axis]):
        return x
    zeros = (0,) * x.type.rank
    return slice_by_index(x, _with(zeros, axis, begin), _with(x.type.shape, axis, end))


def _with(sizes: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _same_axis(of: TensorType, axis: int, source: TensorType) -> int:
    """The axis of a reshape's operand that is this one of its result."""
    for at, size in enumerate(source.shape):
        before = prod(source.shape[:at]) == prod(of.shape[:axis])
        if before and size == of.shape[axis] > 1:
            return at
    raise UnsplitError
