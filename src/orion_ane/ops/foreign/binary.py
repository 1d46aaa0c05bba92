"""Two operands that broadcast: comparisons, logic, and the arithmetic beside the core's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.arithmetic import Binary, Pow, RealDiv, greater_equal, select, unbroadcast
from orion_ane.ops.foreign.parameters import as_type
from orion_ane.ops.foreign.unary import Log
from orion_ane.ops.leaf import Const, const
from orion_ane.ops.rules import broadcast, typed, want_count, want_dtypes
from orion_ane.types import Array, DType, TensorType


class Stepped(Binary):
    """Operands whose result jumps."""

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None


class Comparison(Stepped):
    """Numbers that are compared, to a bool."""

    def infer(self, args: Types) -> TensorType:
        return super().infer(args).with_dtype(DType.BOOL)


@dataclass(frozen=True)
class Equal(Comparison, name="equal"):
    """Whether x = y.  x, y: T[...] -> bool[...], broadcast.  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.equal(*args)


@dataclass(frozen=True)
class NotEqual(Comparison, name="not_equal"):
    """Whether x ≠ y.  x, y: T[...] -> bool[...], broadcast.  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.not_equal(*args)


@dataclass(frozen=True)
class Greater(Comparison, name="greater"):
    """Whether x > y.  x, y: T[...] -> bool[...], broadcast.  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.greater(*args)


@dataclass(frozen=True)
class Less(Comparison, name="less"):
    """Whether x < y.  x, y: T[...] -> bool[...], broadcast.  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.less(*args)


@dataclass(frozen=True)
class LessEqual(Comparison, name="less_equal"):
    """Whether x ≤ y.  x, y: T[...] -> bool[...], broadcast.  No gradient: a step."""

    def eval(self, args: Arrays) -> Array:
        return np.less_equal(*args)


class Logic(Stepped):
    """Bools to a bool."""

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        for arg in args:
            want_dtypes(self, arg, (DType.BOOL,))
        return typed(self, DType.BOOL, broadcast(self, *args))


@dataclass(frozen=True)
class LogicalAnd(Logic, name="logical_and"):
    """Whether both hold.  x, y: bool[...] -> bool[...], broadcast.  No gradient: of bools."""

    def eval(self, args: Arrays) -> Array:
        return np.logical_and(*args)


@dataclass(frozen=True)
class LogicalOr(Logic, name="logical_or"):
    """Whether one holds.  x, y: bool[...] -> bool[...], broadcast.  No gradient: of bools."""

    def eval(self, args: Arrays) -> Array:
        return np.logical_or(*args)


@dataclass(frozen=True)
class LogicalXor(Logic, name="logical_xor"):
    """Whether just one holds.  x, y: bool[...] -> bool[...], broadcast.  No gradient: of bools."""

    def eval(self, args: Arrays) -> Array:
        return np.logical_xor(*args)


@dataclass(frozen=True)
class Minimum(Binary, name="minimum"):
    """The smaller of x and y; NaN where either is.  x, y: T[...] -> T[...], broadcast.

    At a tie the gradient goes to x.
    """

    def eval(self, args: Arrays) -> Array:
        return np.minimum(*args)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        zero, to_a = const(0, dy.type.dtype), greater_equal(b, a)
        return (
            unbroadcast(select(to_a, dy, zero), a.type),
            unbroadcast(select(to_a, zero, dy), b.type),
        )


@dataclass(frozen=True)
class FloorDiv(Stepped, name="floor_div"):
    """x / y, rounded down; of integers 0 where y is 0.  x, y: T[...] -> T[...], broadcast.

    No gradient: a step.
    """

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.floor_divide(*args)


@dataclass(frozen=True)
class Mod(Binary, name="mod"):
    """x − y ⌊x / y⌋, of the sign of y; of integers 0 where y is 0.

    x, y: T[...] -> T[...], broadcast.
    """

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.mod(*args)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        return unbroadcast(dy, a.type), unbroadcast(-(dy * Node(FloorDiv(), (a, b))), b.type)


@dataclass(frozen=True)
class PowBy(Binary, name="pow_by", mil=""):
    """x to the y; NaN for x < 0 unless y is whole.  x, y: T[...] -> T[...], broadcast.

    Of integers the whole part, saturated.  The exponent's gradient is NaN for x < 0.  A power of
    floats by a lone constant reads as `pow`.
    """

    def eval(self, args: Arrays) -> Array:
        x, y = args
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            if x.dtype.kind != "f":  # numpy has no negative powers of integers
                return as_type(np.power(x.astype(np.float64), y), x.dtype)
            return np.power(x, y)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        a, b = y.args
        lower = Node(PowBy(), (a, b - const(1, b.type.dtype)))
        return (
            unbroadcast(dy * b * lower, a.type),
            unbroadcast(dy * y * Node(Log(0.0), (a,)), b.type),
        )

    def mil(self) -> MilCall:
        return MilCall("pow", ("x", "y"))


@dataclass(frozen=True)
class WholeDiv(Stepped, name="whole_div", mil=""):
    """x / y of integers, cut towards 0; 0 where y is 0 and x too, else saturated.

    x, y: int32[...] -> int32[...], broadcast.  No gradient: of integers.
    """

    def infer(self, args: Types) -> TensorType:
        for arg in args:
            want_dtypes(self, arg, (DType.INT32,))
        return super().infer(args)

    def eval(self, args: Arrays) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return as_type(np.true_divide(*args), args[0].dtype)

    def mil(self) -> MilCall:
        return MilCall("real_div", ("x", "y"))


def read_pow(args: MilArgs) -> Node:
    """MIL's `pow`: by a lone constant, or by as many exponents as there are elements."""
    x, y = args.node("x"), args.node("y")
    is_lone = isinstance(y.op, Const) and y.type.elements == 1 and y.type.rank <= x.type.rank
    if is_lone and x.type.dtype.is_float:
        return Pow.read(args)
    return Node(PowBy(), (x, y))


def read_real_div(args: MilArgs) -> Node:
    """MIL's `real_div`, of floats or of integers."""
    x, y = args.node("x"), args.node("y")
    return Node(RealDiv() if x.type.dtype.is_float else WholeDiv(), (x, y))


Op.readers["pow"] = read_pow
Op.readers["real_div"] = read_real_div
