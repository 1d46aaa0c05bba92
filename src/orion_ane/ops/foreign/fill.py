"""Values known when a program is read, and copies of a value: fill, range_1d, shape, tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.leaf import MAX_CONST_ELEMENTS, Const, const
from orion_ane.ops.reduction import reduce_sum
from orion_ane.ops.rules import typed, unary
from orion_ane.ops.shape import reshape, slice_by_index
from orion_ane.types import MAX_ELEMENTS, Array, DType, TensorType


@dataclass(frozen=True)
class Tile(Op, name="tile"):
    """x, reps[i] times over on axis i.  x: T[...] -> T[sizes times reps]."""

    reps: tuple[int, ...]

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        if len(self.reps) != x.rank or not self.reps or min(self.reps) < 1:
            raise ShapeError(
                self.name,
                "repeats do not fit",
                got=f"{self.reps} of x {x}",
                want="one from 1 for each axis",
            )
        return typed(self, x.dtype, tuple(n * r for n, r in zip(x.shape, self.reps, strict=True)))

    def eval(self, args: Arrays) -> Array:
        return np.tile(args[0], self.reps)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        for axis, reps in enumerate(self.reps):
            if reps > 1:
                before, after = dy.type.shape[:axis], dy.type.shape[axis + 1 :]
                n = dy.type.shape[axis] // reps
                copies = reshape(dy, (prod(before), reps, n, prod(after)))
                dy = reshape(reduce_sum(copies, (1,)), (*before, n, *after))
        return (dy,)

    def mil(self) -> MilCall:
        return MilCall("tile", ("x",), {"reps": self.reps})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.integers("reps")), (args.node("x"),))


def filled(value: Node, shape: tuple[int, ...]) -> Node:
    """A tensor of `shape` whose elements are all the one of `value`."""
    ones = reshape(value, (1,) * len(shape))
    return Node(Tile(shape), (ones,)) if prod(shape) != 1 else ones


def zeros(of: TensorType) -> Node:
    """Nothing but zeros."""
    return filled(const(0, of.dtype), of.shape)


def _read_fill(args: MilArgs) -> Node:
    """`fill`, which is a scalar's tile."""
    return filled(_value(args), args.integers("shape"))


def _read_fill_like(args: MilArgs) -> Node:
    """`fill_like`: the shape is known, so that nothing is left of the tensor."""
    return filled(_value(args), args.node("ref_tensor").type.shape)


def _value(args: MilArgs) -> Node:
    value = args.maybe("value")
    return const(0, DType.FP32) if value is None else value


def _read_shape(args: MilArgs) -> Node:
    """`shape`, which is a constant here."""
    return const(args.node("x").type.shape, DType.INT32)


def _read_range(args: MilArgs) -> Node:
    """`range_1d` of constants, which is a constant."""
    ends = tuple(args.node(name) for name in ("start", "end", "step"))
    dtype = ends[0].type.dtype
    if any(not isinstance(node.op, Const) or node.type != TensorType(dtype) for node in ends):
        got = ", ".join(str(node.type) for node in ends)
        raise MilError(args.op, "not constants", got=got, want="constant scalars of one type")
    start, end, step = (node.op.value.item() for node in ends if isinstance(node.op, Const))
    if not all(np.isfinite((start, end, step))) or step == 0:
        raise MilError(args.op, "no such range", got=(start, end, step))
    count = np.ceil((end - start) / step)
    if not 1 <= count <= MAX_ELEMENTS:
        want = f"1 to {MAX_ELEMENTS} elements"
        raise MilError(args.op, "no such range", got=(start, end, step), want=want)
    if count <= MAX_CONST_ELEMENTS:
        return const(start + step * np.arange(count), dtype)
    rows = -(-int(count) // MAX_CONST_ELEMENTS)  # the sums of two constants, cut to length
    first = const((start + step * MAX_CONST_ELEMENTS * np.arange(rows))[:, None], dtype)
    within = const(step * np.arange(MAX_CONST_ELEMENTS), dtype)
    whole = reshape(first + within, (rows * MAX_CONST_ELEMENTS,))
    return slice_by_index(whole, (0,), (int(count),))


@dataclass(frozen=True)
class OneHot(Op, name="one_hot"):
    """on where the place on the new `axis` is the index, else off: all off outside 0 to size - 1.

    indices: I[...], on, off: T[] -> T[... with size at axis].  No gradient: the result is a step
    of the indices, and on and off are parameters.
    """

    size: int
    axis: int

    def infer(self, args: Types) -> TensorType:
        if len(args) != 3:
            raise ShapeError(self.name, "wrong number of operands", got=len(args), want=3)
        indices, on, off = args
        if indices.dtype.is_float or indices.dtype is DType.BOOL:
            raise ShapeError(self.name, "element type not supported", got=indices, want="integers")
        if on != off or on.rank:
            got = f"on {on} and off {off}"
            raise ShapeError(self.name, "not two scalars of one type", got=got)
        rank = indices.rank + 1
        if not -rank <= self.axis < rank or self.size < 1:
            got = f"{self.size} on axis {self.axis} for indices {indices}"
            raise ShapeError(self.name, "no such axis or size", got=got)
        axis = self.axis % rank
        shape = (*indices.shape[:axis], self.size, *indices.shape[axis:])
        return typed(self, on.dtype, shape)

    def eval(self, args: Arrays) -> Array:
        indices, on, off = args
        axis = self.axis % (indices.ndim + 1)
        places = np.arange(self.size).reshape(-1, *(1,) * (indices.ndim - axis))
        return np.where(np.expand_dims(indices.astype(np.int64), axis) == places, on, off)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None, None

    def mil(self) -> MilCall:
        consts = {"one_hot_vector_size": self.size, "axis": self.axis}
        return MilCall("one_hot", ("indices", "on_value", "off_value"), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        indices, on, off = args.node("indices"), args.maybe("on_value"), args.maybe("off_value")
        given = on or off
        dtype = DType.INT32 if given is None else given.type.dtype
        chosen = (on or const(1, dtype), off or const(0, dtype))
        op = cls(args.integer("one_hot_vector_size"), args.integer("axis", -1))
        return Node(op, (indices, *chosen))


Op.readers["fill"] = _read_fill
Op.readers["fill_like"] = _read_fill_like
Op.readers["range_1d"] = _read_range
Op.readers["shape"] = _read_shape
