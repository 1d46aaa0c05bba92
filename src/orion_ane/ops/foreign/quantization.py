"""Numbers of few bits and what they stand for: at a run, and packed weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.foreign.decompress import affine, blockwise, fold
from orion_ane.ops.leaf import Const, const
from orion_ane.ops.rules import FLOATS, axis_of, want_count, want_dtypes, want_same_dtype
from orion_ane.ops.shape import cast
from orion_ane.types import Array, DType, TensorType

BYTES = (DType.INT8, DType.UINT8)


class Affine(Op):
    """A row with data, scale and zero point: two numbers, or two for each place on `axis`."""

    axis: int | None

    def want_scale(self, x: TensorType, scale: TensorType, zero: TensorType) -> None:
        """Refuse a scale and a zero point that do not fit x."""
        if zero.shape != scale.shape or (scale.rank == 0) != (self.axis is None):
            got = f"scale {scale}, zero_point {zero}, axis {self.axis}"
            want = "two numbers and no axis, or two vectors and an axis"
            raise ShapeError(self.name, "do not go together", got=got, want=want)
        if self.axis is not None:
            size = x.shape[axis_of(self, self.axis, x)]
            if scale.shape != (size,):
                want = f"{size} numbers"
                raise ShapeError(self.name, "scale does not fit", got=scale, want=want)

    def spread(self, vector: Array, rank: int) -> Array:
        """A vector shaped to broadcast along `axis`."""
        if self.axis is None:
            return vector
        shape = [1] * rank
        shape[self.axis] = -1
        return vector.reshape(shape)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None, None

    def _along(self) -> dict[str, Literal]:
        return {} if self.axis is None else {"axis": self.axis}


def _axis(args: MilArgs) -> int | None:
    return args.integer("axis") if "axis" in args else None


def _zero(args: MilArgs, scale: Node, dtype: DType) -> Node:
    """The zero point; zero unless given."""
    found = args.maybe("zero_point")
    return const(np.zeros(scale.type.shape), dtype) if found is None else found


@dataclass(frozen=True)
class Quantize(Affine, name="quantize"):
    """x / scale + zero_point as a small integer, rounded to even and saturated; NaN is 0.

    x: F[...], scale: F[] or F[n], zero_point: to[] or to[n] -> to[...].  No gradient: a step.
    """

    to: DType
    axis: int | None = None

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        x, scale, zero = args
        want_dtypes(self, x, FLOATS)
        want_same_dtype(self, x, scale, "xs")
        if self.to not in BYTES or zero.dtype is not self.to:
            got = f"{self.to} and zero_point {zero}"
            raise ShapeError(self.name, "not a type to quantise to", got=got, want="int8 or uint8")
        self.want_scale(x, scale, zero)
        return x.with_dtype(self.to)

    def eval(self, args: Arrays) -> Array:
        x, scale, zero = args[0], *(self.spread(v, args[0].ndim) for v in args[1:])
        held = np.iinfo(self.to.numpy)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.rint(x / scale) + zero.astype(x.dtype)
        return np.clip(np.where(np.isnan(near), 0, near), held.min, held.max).astype(self.to.numpy)

    def mil(self) -> MilCall:
        said = {**self._along(), "output_dtype": str(self.to)}
        return MilCall("quantize", ("input", "scale", "zero_point"), said)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        word, scale = args.text("output_dtype"), args.node("scale")
        if word not in map(str, BYTES):
            raise MilError("quantize", "no such output_dtype", got=word, want="int8 or uint8")
        to = DType(word)
        operands = (args.node("input"), scale, _zero(args, scale, to))
        return Node(cls(to, _axis(args)), operands)


@dataclass(frozen=True)
class Dequantize(Affine, name="dequantize"):
    """scale (x − zero_point).  x: int8 or uint8 [...], scale: F[] or F[n] -> F[...].

    The zero point is of x's type and scale's shape.  No gradient: quantised models are run.
    """

    axis: int | None = None

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        x, scale, zero = args
        want_dtypes(self, x, BYTES)
        want_dtypes(self, scale, FLOATS)
        want_same_dtype(self, x, zero, "xz")
        self.want_scale(x, scale, zero)
        return x.with_dtype(scale.dtype)

    def eval(self, args: Arrays) -> Array:
        x, scale, zero = args[0], *(self.spread(v, args[0].ndim) for v in args[1:])
        return (x.astype(scale.dtype) - zero.astype(scale.dtype)) * scale

    def mil(self) -> MilCall:
        return MilCall("dequantize", ("input", "scale", "zero_point"), self._along())

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        x, scale = args.node("input"), args.node("scale")
        return Node(cls(_axis(args)), (x, scale, _zero(args, scale, x.type.dtype)))


@dataclass(frozen=True)
class AffineDequantize(Op, name="constexpr_affine_dequantize"):
    """scale (data − zero_point): a weight of bytes, unpacked when a program is loaded.

    data: int8 or uint8 [...], scale: F[] or F[n], zero_point: bytes or fp32, [] or [n] -> F[...].
    No gradient: quantised models are run.
    """

    axis: int

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        data, scale, zero = args
        want_dtypes(self, data, BYTES)
        want_dtypes(self, scale, FLOATS)
        want_dtypes(self, zero, (*BYTES, DType.FP32))
        size = data.shape[axis_of(self, self.axis, data)]
        for name, vector in (("scale", scale), ("zero_point", zero)):
            if vector.rank > 1 or vector.elements not in (1, size):
                want = f"1 or {size} numbers"
                raise ShapeError(self.name, f"{name} does not fit", got=vector, want=want)
        return data.with_dtype(scale.dtype)

    def eval(self, args: Arrays) -> Array:
        data, scale, zero = args
        return affine(data, zero, scale, np.asarray(self.axis))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None, None

    def mil(self) -> MilCall:
        operands = ("quantized_data", "scale", "zero_point")
        return MilCall("constexpr_affine_dequantize", operands, {"axis": self.axis})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        names = ("quantized_data", "scale", "zero_point")
        return Node(cls(args.integer("axis")), tuple(args.node(name) for name in names))


@dataclass(frozen=True)
class BlockwiseShiftScale(Op, name="constexpr_blockwise_shift_scale"):
    """scale (data − offset), each of whose numbers serves a block of data.

    data: int8, uint8 or F [...], scale: F[sizes that divide data's], offset: of data's type or F,
    as scale -> F[...].  No gradient: quantised models are run.
    """

    has_offset: bool = False

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2 + self.has_offset)
        data, scale = args[:2]
        want_dtypes(self, data, (*BYTES, *FLOATS))
        want_dtypes(self, scale, FLOATS)
        divides = zip(data.shape, scale.shape, strict=False)
        if not data.rank or data.rank != scale.rank or any(n % m for n, m in divides):
            got = f"data {data} and scale {scale}"
            raise ShapeError(self.name, "blocks do not cover data", got=got)
        if self.has_offset:
            want_dtypes(self, args[2], tuple(dict.fromkeys((data.dtype, *FLOATS))))
            if args[2].shape != scale.shape:
                raise ShapeError(self.name, "offset does not fit", got=args[2], want=scale)
        return data.with_dtype(scale.dtype)

    def eval(self, args: Arrays) -> Array:
        return blockwise(*args)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,) * len(y.args)

    def mil(self) -> MilCall:
        operands = ("data", "scale", *(("offset",) * self.has_offset))
        return MilCall("constexpr_blockwise_shift_scale", operands)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        offset = args.maybe("offset")
        operands = (args.node("data"), args.node("scale"), *(() if offset is None else (offset,)))
        return Node(cls(offset is not None), operands)


def read_packed(args: MilArgs) -> tuple[Node, ...]:
    """A packed constant that the text itself holds, unpacked.

    Those in blob files are unpacked by whoever has the files.
    """
    given: dict[str, Array] = {}
    for name in args.leftover:
        leaf = args.node(name).op
        if not isinstance(leaf, Const):
            raise MilError(args.op, f"{name} is not in the text", hint="import the package")
        given[name] = leaf.value
    return tuple(const(value, DType.of(value.dtype)) for value in fold(args.op, given))


def read_cast(args: MilArgs) -> Node:
    """MIL's `constexpr_cast`: fp16 to fp32."""
    if args.text("output_dtype") != "fp32":
        raise MilError(args.op, "no such output_dtype", got=args.text("output_dtype"), want="fp32")
    return cast(args.node("source_val"), DType.FP32)


_PACKED = (
    "constexpr_lut_to_dense",
    "constexpr_lut_to_sparse",
    "constexpr_sparse_to_dense",
    "constexpr_sparse_blockwise_shift_scale",
)
Op.readers.update(dict.fromkeys(_PACKED, read_packed), constexpr_cast=read_cast)
