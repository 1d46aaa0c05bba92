"""What a sample of a row is: operands that an op takes, and operands that it refuses.

Types are written as they print; `T` in a sample stands for each of the row's dtypes in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import strategies

from orion_ane.ir import Node, Op
from orion_ane.ops import input_
from orion_ane.types import Array, DType, TensorType

FP16, FP32, INT32, BOOL = DType.FP16, DType.FP32, DType.INT32, DType.BOOL
FLOATS = (FP16, FP32)
ARITHMETIC = (FP16, FP32, INT32)
ANY = (FP16, FP32, INT32, BOOL)


def typed(text: str) -> TensorType:
    """The type that prints as `text`."""
    dtype, _, sizes = text.removesuffix("]").partition("[")
    return TensorType(DType(dtype), tuple(int(n) for n in sizes.split(",") if n))


@dataclass(frozen=True)
class Operand:
    """A type, and the interval that values are drawn from."""

    type: str
    lo: float = -2.0
    hi: float = 2.0


@dataclass(frozen=True)
class Sample:
    """An op on operands; `stops` lists those that get no gradient, beside integers and bools."""

    op: Op
    operands: tuple[Operand, ...]
    stops: tuple[int, ...] = ()

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(typed(operand.type) for operand in self.operands)

    def nodes(self) -> tuple[Node, ...]:
        return tuple(input_(f"x{i}", of) for i, of in enumerate(self.types))

    def values(self, rng: np.random.Generator) -> tuple[Array, ...]:
        return tuple(
            strategies.values(of, rng, operand.lo, operand.hi)
            for of, operand in zip(self.types, self.operands, strict=True)
        )

    def of(self, dtype: DType) -> Sample:
        """This sample with `T` read as `dtype`."""
        operands = (replace(x, type=x.type.replace("T", str(dtype), 1)) for x in self.operands)
        return replace(self, operands=tuple(operands))

    def __str__(self) -> str:
        return f"{self.op}({', '.join(x.type for x in self.operands)})"


@dataclass(frozen=True)
class Bad:
    """Operands that an op refuses, and a part of what it says."""

    op: Op
    operands: tuple[str, ...]
    says: str


@dataclass(frozen=True)
class Row:
    """All that is known of a row from outside."""

    dtypes: tuple[DType, ...]
    samples: tuple[Sample, ...]
    errors: tuple[Bad, ...]


def ok(op: Op, *operands: str | Operand, stops: tuple[int, ...] = ()) -> Sample:
    return Sample(op, tuple(Operand(x) if isinstance(x, str) else x for x in operands), stops)


def bad(op: Op, *operands: str, says: str) -> Bad:
    return Bad(op, operands, says)


def above(lo: float, of: str, hi: float = 3.0) -> Operand:
    return Operand(of, lo, hi)


def binary(
    op: Op, dtypes: tuple[DType, ...] = ARITHMETIC, *, stops: tuple[int, ...] = (), y_lo=-2.0
) -> Row:
    name, short = op.name, dtypes[0]
    pairs = [
        ("T[2,3]", above(y_lo, "T[2,3]")),
        ("T[]", above(y_lo, "T[2,3]")),
        ("T[2,1,4]", above(y_lo, "T[3,1]")),
        ("T[1,3,1,2]", above(y_lo, "T[]")),
        ("T[4]", above(y_lo, "T[1,2,1,2,4]")),
    ]
    return Row(
        dtypes,
        tuple(ok(op, *pair, stops=stops) for pair in pairs),
        (
            bad(op, f"{short}[2,3]", says=f"{name}: wrong number of operands: got 1, want 2"),
            bad(
                op,
                "fp16[1,64,1,16]",
                "fp32[1,64,1,16]",
                says=f"{name}: element types differ: got x fp16[1,64,1,16] and y fp32[1,64,1,16]"
                "\n  hint: cast one side",
            ),
            bad(
                op,
                "fp16[2,3]",
                "fp16[4,3]",
                says=f"{name}: sizes do not broadcast on axis -2: got fp16[2,3] and fp16[4,3], "
                "want equal sizes or 1",
            ),
            bad(op, "bool[2]", "bool[2]", says=f"{name}: element type not supported: got bool[2]"),
        ),
    )


def curve(op: Op, lo: float = -2.0, hi: float = 2.0, *more: Sample, errors=()) -> Row:
    shapes = ("T[3]", "T[]", "T[2,1,3]", "T[1,4,1,2]", "T[1,2,1,2,3]")
    return Row(
        FLOATS,
        tuple(ok(op, Operand(shape, lo, hi)) for shape in shapes) + more,
        (
            bad(op, says=f"{op.name}: wrong number of operands: got 0, want 1"),
            bad(
                op,
                "int32[2]",
                says=f"{op.name}: element type not supported: got int32[2], want fp16 or fp32"
                "\n  hint: cast it first",
            ),
            *errors,
        ),
    )


def reduction(make, dtypes, stops: tuple[int, ...] = ()) -> Row:
    name = make((0,)).name
    return Row(
        dtypes,
        (
            ok(make((0,)), "T[3]", stops=stops),
            ok(make((-1,)), "T[2,3]", stops=stops),
            ok(make((1, -1)), "T[1,4,1,3]", stops=stops),
            ok(make((0, 1, 2, 3, 4)), "T[2,1,2,1,3]", stops=stops),
            ok(make((1,)), "T[2,1,2]", stops=stops),
        ),
        (
            bad(make((2,)), "fp16[4,5]", says=f"{name}: no such axis: got 2 for x fp16[4,5], want"),
            bad(make((0, -2)), "fp16[4,5]", says=f"{name}: an axis is given twice: got (0, -2)"),
            bad(make(()), "fp16[4,5]", says=f"{name}: no axes"),
            bad(
                make((0,)), "fp16[]", says=f"{name}: a scalar has no axes: got axis 0 for x fp16[]"
            ),
            bad(make((0,)), "bool[4]", says=f"{name}: element type not supported: got bool[4]"),
        ),
    )


def without_scalars(row: Row) -> Row:
    """A row whose samples have axes: Core ML's own inference fails, or warns, at its scalars."""
    samples = tuple(
        sample for sample in row.samples if all(of.shape for of in sample.of(FP16).types)
    )
    return replace(row, samples=samples)
