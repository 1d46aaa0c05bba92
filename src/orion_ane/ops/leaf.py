"""Leaves: what a run supplies, what the text holds, what the blob holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.types import Array, DType, TensorType

MAX_CONST_ELEMENTS = 1 << 20  # what is longer belongs in a blob


class Leaf(Op):
    """A node without operands: it has no gradient, and the emitter spells it, not `mil`."""

    of: TensorType

    def infer(self, args: Types) -> TensorType:
        if args:
            raise ShapeError(self.name, "a leaf takes no operands", got=len(args), want=0)
        return self.of

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return ()

    def mil(self) -> MilCall:
        return MilCall("const", ())

    @classmethod
    def read(cls, args: MilArgs) -> NoReturn:
        raise MilError(args.op, f"a {cls.name} is not read as a statement")


@dataclass(frozen=True)
class Input(Leaf, name="input", mil=""):
    """A value supplied at each run.  () -> of.  No gradient: it is where gradients end.

    Two leaves with one label stay two inputs; the graph names them.
    """

    label: str
    of: TensorType

    def eval(self, args: Arrays) -> Array:
        raise ShapeError(self.name, "no value was fed", got=self.label)


@dataclass(frozen=True)
class Const(Leaf, name="const", mil=""):
    """A scalar or short list that the text itself holds.  () -> of.  No gradient: it is fixed.

    `data` is the value's bytes, little endian, row by row, so that equal constants are equal ops.
    """

    of: TensorType
    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != self.of.nbytes:
            raise ShapeError(
                self.name, "wrong number of bytes", got=len(self.data), want=self.of.nbytes
            )
        if self.of.elements > MAX_CONST_ELEMENTS:
            raise ShapeError(
                self.name,
                "too long for the text",
                got=self.of,
                want=f"at most {MAX_CONST_ELEMENTS} elements",
                hint="make it a weight",
            )

    def __repr__(self) -> str:
        shown = self.value.ravel()[:4].tolist()
        return f"Const({self.of}, {shown}{' …' if self.of.elements > 4 else ''})"

    @property
    def value(self) -> Array:
        """The constant as a read-only array."""
        return np.frombuffer(self.data, self.of.dtype.numpy).reshape(self.of.shape)

    def eval(self, args: Arrays) -> Array:
        return self.value


@dataclass(frozen=True)
class BlobRef:
    """Where a weight lies: a blob file's path in the program, and its metadata's byte offset."""

    path: str
    offset: int


@dataclass(frozen=True)
class Weight(Leaf, name="weight", mil=""):
    """A tensor from a blob file.  () -> of.  No gradient here: the host multiplies taps.

    `at` is None until a program's files are laid out (`orion_ane.mil.place`).
    """

    label: str
    of: TensorType
    at: BlobRef | None = None

    def eval(self, args: Arrays) -> Array:
        raise ShapeError(self.name, "no value was fed", got=self.label)


def input_(label: str, of: TensorType) -> Node:
    """An input leaf."""
    return Node(Input(label, of))


def weight(label: str, of: TensorType) -> Node:
    """A weight leaf, not yet placed in a file."""
    return Node(Weight(label, of))


def const(value: ArrayLike, dtype: DType) -> Node:
    """A constant leaf of `dtype`, rounded to it to nearest even.

    Raises:
        ShapeError: a finite value does not fit the type (−1e9 is −inf in fp16: case N01).
    """
    wide = np.asarray(value)
    if wide.dtype.kind not in "biuf":
        raise ShapeError("const", f"does not fit {dtype}", got=value)
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(wide.astype(dtype.numpy), order="C")
    if dtype.is_float:
        limit = float(np.finfo(dtype.numpy).max)
        wrong, want = np.isfinite(wide) & ~np.isfinite(array), f"at most {limit}"
        hint = f"a mask takes -inf or -{limit} in this type"
    else:
        wrong, want, hint = array != wide, "values that the type holds exactly", None
    if np.any(wrong):
        got = wide[wrong].item(0)
        raise ShapeError("const", f"does not fit {dtype}", got=got, want=want, hint=hint)
    return Node(Const(TensorType(dtype, array.shape), array.tobytes()))
