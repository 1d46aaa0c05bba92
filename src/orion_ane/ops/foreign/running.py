"""Sums that run along an axis, the band of a matrix, and borders that are not of zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.rules import ARITHMETIC, FLOATS, axis_of, typed, unary, want_dtypes, want_held
from orion_ane.ops.shape import Pad, slice_by_index
from orion_ane.types import Array, TensorType

_MODES = ("constant", "reflect", "replicate")


@dataclass(frozen=True)
class Cumsum(Op, name="cumsum"):
    """The sum of all elements up to each on `axis`; of those before it where `exclusive`.

    x: T[...] -> T[...].  `reverse` sums from the end.
    """

    axis: int
    exclusive: bool
    reverse: bool

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, ARITHMETIC)
        axis_of(self, self.axis, x)
        return x

    def eval(self, args: Arrays) -> Array:
        x = np.flip(args[0], self.axis) if self.reverse else args[0]
        with np.errstate(all="ignore"):
            result = np.cumsum(x, self.axis, dtype=x.dtype)
        if self.exclusive:  # shifted, since subtracting x again would round
            result = np.roll(result, 1, self.axis)
            first = [slice(None)] * x.ndim
            first[self.axis] = slice(1)
            result[tuple(first)] = 0
        return np.flip(result, self.axis) if self.reverse else result

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (Node(Cumsum(self.axis, self.exclusive, not self.reverse), (dy,)),)

    def mil(self) -> MilCall:
        consts: dict[str, Literal] = {
            "axis": self.axis,
            "exclusive": self.exclusive,
            "reverse": self.reverse,
        }
        return MilCall("cumsum", ("x",), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        exclusive, reverse = (args.flag(key, default=False) for key in ("exclusive", "reverse"))
        return Node(cls(args.integer("axis", 0), exclusive, reverse), (args.node("x"),))


@dataclass(frozen=True)
class BandPart(Op, name="band_part"):
    """x on `lower` diagonals below the main one and `upper` above it, else 0; -1 is all of them.

    x: T[..., M, N] -> T[..., M, N].
    """

    lower: int
    upper: int

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        if x.rank < 2:
            raise ShapeError(self.name, "rank too low", got=x, want="at least 2")
        if max(abs(self.lower), abs(self.upper)) >= 1 << 31:
            got = (self.lower, self.upper)
            raise ShapeError(self.name, "more diagonals than a tensor has", got=got)
        return x

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        below = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
        kept = (self.lower < 0) | (below <= self.lower)
        kept = kept & ((self.upper < 0) | (-below <= self.upper))
        return np.where(kept, x, np.zeros((), x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (Node(self, (dy,)),)

    def mil(self) -> MilCall:
        return MilCall("band_part", ("x",), {"lower": self.lower, "upper": self.upper})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return Node(cls(args.integer("lower", -1), args.integer("upper", -1)), (args.node("x"),))


@dataclass(frozen=True)
class Border(Op, name="border", mil=""):
    """x with a border: of one value, or mirrored at the edge, or the edge itself repeated.

    x: T[...] -> T[sizes grow].  Spelled `pad`; a border of zeros is another row's.
    No gradient but for a border of one value: it would add up what is repeated.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str
    value: float = 0.0

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        if self.mode not in _MODES:
            raise ShapeError(self.name, "no such mode", got=self.mode, want=list(_MODES))
        got = f"{self.before} and {self.after} for x {x}"
        fits = len(self.before) == len(self.after) == x.rank
        if not fits or min((*self.before, *self.after), default=0) < 0:
            want = "two amounts from 0 on each axis"
            raise ShapeError(self.name, "amounts do not fit", got=got, want=want)
        pairs = zip(self.before, self.after, x.shape, strict=True)
        if self.mode == "reflect" and any(max(b, a) >= n for b, a, n in pairs):
            raise ShapeError(self.name, "amounts do not fit", got=got, want="less than is mirrored")
        if (self.mode == "constant") == (self.value == 0):
            got = f"{self.value} to {self.mode}"
            raise ShapeError(self.name, "no value for this mode", got=got, want="one but 0")
        if self.value:
            want_dtypes(self, x, FLOATS)
            want_held(self, "the value", self.value, x.dtype)
        grown = zip(self.before, x.shape, self.after, strict=True)
        return typed(self, x.dtype, tuple(b + n + a for b, n, a in grown))

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        amounts = tuple(zip(self.before, self.after, strict=True))
        if not amounts:
            return x
        if self.mode == "constant":
            return np.pad(x, amounts, constant_values=self.value)
        return (
            np.pad(x, amounts, "reflect") if self.mode == "reflect" else np.pad(x, amounts, "edge")
        )

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        if self.mode != "constant":
            return (None,)
        ends = tuple(b + n for b, n in zip(self.before, y.args[0].type.shape, strict=True))
        return (slice_by_index(dy, self.before, ends),)

    def mil(self) -> MilCall:
        amounts = tuple(n for pair in zip(self.before, self.after, strict=True) for n in pair)
        consts: dict[str, Literal] = {
            "pad": amounts,
            "mode": self.mode,
            "constant_val": float(self.value),
        }
        return MilCall("pad", ("x",), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        return _read_pad(args)


def _read_pad(args: MilArgs) -> Node:
    """`pad` of each mode; the value says nothing where it is not laid around."""
    x, mode = args.node("x"), args.text("mode", "constant")
    value = args.number("constant_val", 0.0)
    if mode == "constant" and value == 0:
        return Pad.read(args)
    rank, amounts = x.type.rank, args.integers("pad")
    if len(amounts) % 2 or len(amounts) > 2 * rank:
        raise MilError("pad", "amounts do not fit", got=amounts, want=f"pairs for {x.type}")
    lead = (0,) * (rank - len(amounts) // 2)  # fewer pairs pad the last axes
    kept = value if mode == "constant" else 0.0
    return Node(Border(lead + amounts[::2], lead + amounts[1::2], mode, kept), (x,))


Op.readers["pad"] = _read_pad
