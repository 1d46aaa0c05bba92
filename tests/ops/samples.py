"""Samples of every row of the op table; those of foreign rows lie in `foreign_samples`."""

from __future__ import annotations

from importlib import import_module
from math import inf, nan
from pathlib import Path

import numpy as np
from ops.sampling import (
    ANY,
    ARITHMETIC,
    BOOL,
    FLOATS,
    FP16,
    FP32,
    INT32,
    Bad,
    Operand,
    Row,
    Sample,
    above,
    bad,
    binary,
    curve,
    ok,
    reduction,
    typed,
)

from orion_ane.ir import Op
from orion_ane.ops import Input, Weight, const
from orion_ane.ops.arithmetic import (
    Add,
    GreaterEqual,
    Maximum,
    Mul,
    Pow,
    RealDiv,
    Select,
    Sub,
)
from orion_ane.ops.curve import Clip, Exp, Neg, Relu, Rsqrt, Sigmoid, Sqrt, Tanh
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum, Softmax
from orion_ane.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from orion_ane.types import DType, TensorType

__all__ = [
    "CORE_ROWS",
    "ERRORS",
    "FOREIGN_ROWS",
    "ROWS",
    "SAMPLES",
    "Bad",
    "Row",
    "Sample",
    "typed",
]


def leaf(make, dtypes) -> Row:
    samples = [ok(make(TensorType(dtype, (2, 3)))) for dtype in dtypes]
    samples += [ok(make(TensorType(FP16))), ok(make(TensorType(FP32, (1, 2, 1, 3, 2))))]
    op = samples[0].op
    says = f"{op.name}: a leaf takes no operands: got 1, want 0"
    return Row((), tuple(samples), (bad(op, "fp16[2]", says=says),))


def some_const(of: TensorType) -> Op:
    return const(np.arange(of.elements).reshape(of.shape) % 2, of.dtype).op


CORE_ROWS: dict[str, Row] = {
    "input": leaf(lambda of: Input("x", of), ANY),
    "const": leaf(some_const, tuple(DType)),
    "weight": leaf(lambda of: Weight("w", of), FLOATS),
    "add": binary(Add()),
    "sub": binary(Sub()),
    "mul": binary(Mul()),
    "real_div": binary(RealDiv(), FLOATS, y_lo=0.5),
    "maximum": binary(Maximum()),
    "greater_equal": binary(GreaterEqual(), stops=(0, 1)),
    "pow": curve(
        Pow(3.0),
        -2.0,
        2.0,
        ok(Pow(0.0), "T[2,3]"),
        ok(Pow(1.0), "T[2]"),
        ok(Pow(2.0), "T[2]"),
        ok(Pow(-1.0), above(0.5, "T[2]")),
        ok(Pow(-0.5), above(0.5, "T[2,2]")),
        ok(Pow(1.5), above(0.25, "T[2]")),
        errors=(
            bad(Pow(inf), "fp16[2]", says="pow: the power is not finite: got inf"),
            bad(Pow(0.1), "fp16[2]", says="pow: the power is not a value of fp16: got 0.1"),
        ),
    ),
    "select": Row(
        ANY,
        (
            ok(Select(), "bool[2,3]", "T[2,3]", "T[2,3]"),
            ok(Select(), "bool[]", "T[2,1]", "T[3]"),
            ok(Select(), "bool[2,1,2]", "T[]", "T[3,1]"),
            ok(Select(), "bool[1,2,1,2,1]", "T[1]", "T[]"),
        ),
        (
            bad(Select(), "fp16[2]", "fp16[2]", says="select: wrong number of operands: got 2"),
            bad(
                Select(),
                "fp16[2]",
                "fp16[2]",
                "fp16[2]",
                says="select: element type not supported: got fp16[2], want bool",
            ),
            bad(
                Select(),
                "bool[2]",
                "fp16[2]",
                "int32[2]",
                says="select: element types differ: got a fp16[2] and b int32[2]",
            ),
            bad(
                Select(),
                "bool[3]",
                "fp16[2]",
                "fp16[2]",
                says="select: sizes do not broadcast on axis -1: got bool[3] and fp16[2]",
            ),
            bad(Select(), "bool[2]", "int8[2]", "int8[2]", says="element type not supported"),
        ),
    ),
    "relu": curve(Relu()),
    "tanh": curve(Tanh()),
    "sigmoid": curve(Sigmoid(), -6.0, 6.0),
    "exp": curve(Exp()),
    "sqrt": curve(Sqrt(), 0.25, 4.0),
    "rsqrt": curve(
        Rsqrt(0.0),
        0.25,
        4.0,
        ok(Rsqrt(0.5), Operand("T[2,3]", 0.0, 2.0)),
        ok(Rsqrt(2.0**-20), above(0.25, "T[2,3]")),
        errors=(
            bad(Rsqrt(inf), "fp16[2]", says="rsqrt: eps is not finite: got inf"),
            bad(Rsqrt(1e-5), "fp32[2]", says="rsqrt: eps is not a value of fp32: got 1e-05"),
        ),
    ),
    "neg": curve(Neg()),
    "clip": curve(
        Clip(-0.5, 1.0),
        -2.0,
        2.0,
        ok(Clip(-inf, 0.25), "T[5]"),
        ok(Clip(-65504.0, 65504.0), "T[5]"),
        errors=(
            bad(Clip(1.0, 1.0), "fp16[2]", says="clip: empty range: got (1.0, 1.0), want lo < hi"),
            bad(Clip(nan, 1.0), "fp16[2]", says="clip: empty range"),
            bad(
                Clip(-1e9, 1.0), "fp16[2]", says="clip: lo is not a value of fp16: got -1000000000"
            ),
            bad(Clip(0.0, 0.1), "fp16[2]", says="clip: hi is not a value of fp16: got 0.1"),
        ),
    ),
    "conv1x1": Row(
        FLOATS,
        (
            ok(Conv1x1(), "T[1,3,1,4]", "T[2,3,1,1]", stops=(1,)),
            ok(Conv1x1(), "T[1,1,1,1]", "T[1,1,1,1]", stops=(1,)),
            ok(Conv1x1(), "T[2,3,4,5]", "T[3,3,1,1]", stops=(1,)),
            ok(Conv1x1(), "T[1,4,1,1]", "T[5,4,1,1]", stops=(1,)),
        ),
        (
            bad(Conv1x1(), "fp16[1,3,1,4]", says="conv1x1: wrong number of operands: got 1"),
            bad(
                Conv1x1(),
                "fp16[1,3,1,4]",
                "fp16[2,4,1,1]",
                says="conv1x1: shapes do not fit: got x fp16[1,3,1,4] and w fp16[2,4,1,1]",
            ),
            bad(Conv1x1(), "fp16[1,3,1,4]", "fp16[2,3,3,1]", says="want [1,I,1,S] and [O,I,1,1]"),
            bad(Conv1x1(), "fp16[3,4]", "fp16[2,3,1,1]", says="conv1x1: shapes do not fit"),
            bad(Conv1x1(), "fp16[1,3,1,4]", "fp32[2,3,1,1]", says="conv1x1: element types differ"),
            bad(Conv1x1(), "int32[1,1,1,1]", "int32[1,1,1,1]", says="element type not supported"),
        ),
    ),
    "matmul": Row(
        ARITHMETIC,
        (
            ok(Matmul(), "T[2,3]", "T[3,4]"),
            ok(Matmul(True, False), "T[3,2]", "T[3,4]"),
            ok(Matmul(False, True), "T[2,2,3]", "T[4,3]"),
            ok(Matmul(True, True), "T[2,1,3,2]", "T[3,4,3]"),
            ok(Matmul(), "T[1,1]", "T[2,1,1,1,3]"),
            ok(Matmul(True, True), "T[1,3]", "T[2,1]"),
        ),
        (
            bad(Matmul(), "fp16[2]", "fp16[2,3]", says="matmul: rank too low: got x fp16[2] and y"),
            bad(
                Matmul(False, True),
                "fp16[2,3]",
                "fp16[3,4]",
                says="matmul: inner sizes differ: got 3 of x fp16[2,3] and 4 of y fp16[3,4]",
            ),
            bad(
                Matmul(),
                "fp16[2,1,2]",
                "fp16[3,2,1]",
                says="matmul: sizes do not broadcast on axis -3: got fp16[2,1,2] and fp16[3,2,1]",
            ),
            bad(Matmul(), "fp16[2,2]", "fp32[2,2]", says="matmul: element types differ"),
            bad(Matmul(), "bool[2,2]", "bool[2,2]", says="matmul: element type not supported"),
            bad(
                Matmul(),
                "fp16[1000000,1]",
                "fp16[1,2000000]",
                says="matmul: too many elements: got fp16[1000000,2000000]",
            ),
        ),
    ),
    "reduce_sum": reduction(ReduceSum, ARITHMETIC),
    "reduce_mean": reduction(ReduceMean, FLOATS),
    "reduce_max": reduction(ReduceMax, ARITHMETIC, stops=(0,)),
    "softmax": Row(
        FLOATS,
        (
            ok(Softmax(-1), "T[2,3]"),
            ok(Softmax(0), "T[4]"),
            ok(Softmax(1), "T[1,4,1,2]"),
            ok(Softmax(-3), "T[2,1,3,1,2]"),
            ok(Softmax(1), "T[2,1]"),
        ),
        (
            bad(
                Softmax(7),
                "fp16[1,64,1,16]",
                says="softmax: no such axis: got 7 for x fp16[1,64,1,16], want -4 to 3",
            ),
            bad(Softmax(0), "fp16[]", says="softmax: a scalar has no axes"),
            bad(Softmax(0), "int32[4]", says="softmax: element type not supported: got int32[4]"),
        ),
    ),
    "reshape": Row(
        ANY,
        (
            ok(Reshape((6,)), "T[2,3]"),
            ok(Reshape((1, 3, 1, 2)), "T[6]"),
            ok(Reshape(()), "T[1,1]"),
            ok(Reshape((1, 1, 2, 2, 1)), "T[4]"),
            ok(Reshape((1,)), "T[]"),
        ),
        (
            bad(Reshape((5,)), "fp16[2,3]", says="reshape: counts differ: got x fp16[2,3] to [5]"),
            bad(Reshape((-2, -3)), "fp16[2,3]", says="reshape: sizes start at 1"),
            bad(Reshape((6, 0)), "fp16[2,3]", says="reshape: sizes start at 1"),
            bad(Reshape((1, 1, 1, 1, 1, 1)), "fp16[1]", says="reshape: rank too high"),
        ),
    ),
    "transpose": Row(
        ANY,
        (
            ok(Transpose((1, 0)), "T[2,3]"),
            ok(Transpose((0, -1, 1, 2)), "T[1,2,3,4]"),
            ok(Transpose((4, 0, 3, 1, 2)), "T[1,2,1,3,2]"),
            ok(Transpose((2, 0, 1)), "T[2,3,4]"),
            ok(Transpose(()), "T[]"),
        ),
        (
            bad(
                Transpose((0, 0)),
                "fp16[2,3]",
                says="transpose: not a permutation: got (0, 0), want axes of fp16[2,3]",
            ),
            bad(Transpose((0,)), "fp16[2,3]", says="transpose: not a permutation"),
            bad(Transpose((0, 2)), "fp16[2,3]", says="transpose: no such axis: got 2"),
            bad(Transpose((0,)), "fp16[]", says="transpose: a scalar has no axes"),
        ),
    ),
    "cast": Row(
        ANY,
        (
            ok(Cast(FP32), "T[2,3]"),
            ok(Cast(FP16), "T[]"),
            ok(Cast(INT32), "T[1,4,1,2]", stops=(0,)),
            ok(Cast(BOOL), "T[3]", stops=(0,)),
            ok(Cast(DType.INT8), "T[3]", stops=(0,)),
            ok(Cast(DType.UINT16), "T[1,2,1,2,1]", stops=(0,)),
        ),
        (
            bad(Cast(FP16), says="cast: wrong number of operands: got 0, want 1"),
            bad(Cast(DType.UINT32), "fp16[2]", says="cast: MIL does not cast to this type: got"),
        ),
    ),
    "identity": Row(
        ANY,
        (
            ok(Identity(), "T[2,3]"),
            ok(Identity(), "T[]"),
            ok(Identity(), "T[1,2,1,2,1]"),
        ),
        (bad(Identity(), "fp16[2]", "fp16[2]", says="identity: wrong number of operands: got 2"),),
    ),
    "slice": Row(
        ANY,
        (
            ok(Slice((0, 1), (2, 3)), "T[2,3]"),
            ok(Slice((1,), (2,)), "T[4]"),
            ok(Slice((0, 2, 0, 0), (1, 4, 1, 3)), "T[1,4,1,3]"),
            ok(Slice((0, 0, 1, 0, 1), (1, 1, 2, 1, 2)), "T[1,2,2,1,3]"),
            ok(Slice((), ()), "T[]"),
        ),
        (
            bad(
                Slice((0, 2), (2, 4)),
                "fp16[2,3]",
                says="slice: bounds do not fit: got (0, 2) to (2, 4) of x fp16[2,3], "
                "want 0 <= begin < end <= size on each axis",
            ),
            bad(Slice((1, 1), (1, 2)), "fp16[2,3]", says="slice: bounds do not fit"),
            bad(Slice((-1, 0), (2, 3)), "fp16[2,3]", says="slice: bounds do not fit"),
            bad(Slice((0,), (1,)), "fp16[2,3]", says="slice: bounds do not fit"),
            bad(Slice((0, 0), (1,)), "fp16[2,3]", says="slice: bounds do not fit"),
        ),
    ),
    "pad": Row(
        FLOATS,
        (
            ok(Pad((1, 0), (0, 2)), "T[2,3]"),
            ok(Pad((2,), (1,)), "T[1]"),
            ok(Pad((0, 0, 0, 1), (0, 3, 0, 0)), "T[1,2,1,3]"),
            ok(Pad((0, 0, 0), (0, 0, 0)), "T[2,1,2]"),
            ok(Pad((), ()), "T[]"),
        ),
        (
            bad(
                Pad((-1, 0), (1, 0)),
                "fp16[2,3]",
                says="pad: amounts do not fit: got (-1, 0) and (1, 0) for x fp16[2,3], "
                "want two amounts from 0 on each axis",
            ),
            bad(Pad((1,), (1,)), "fp16[2,3]", says="pad: amounts do not fit"),
            bad(Pad((1,), ()), "fp16[2]", says="pad: amounts do not fit"),
            bad(Pad((1 << 62,), (0,)), "fp16[2]", says="pad: too many elements"),
            bad(Pad((0,), (0,)), "int32[2]", says="pad: element type not supported: got int32[2]"),
        ),
    ),
    "concat": Row(
        ANY,
        (
            ok(Concat(0), "T[2,3]", "T[1,3]"),
            ok(Concat(-1), "T[2,3]", "T[2,1]", "T[2,2]"),
            ok(Concat(1), "T[1,2,1,3]", "T[1,3,1,3]"),
            ok(Concat(0), "T[3]"),
            ok(Concat(-5), "T[1,2,1,2,1]", "T[2,2,1,2,1]"),
        ),
        (
            bad(Concat(0), says="concat: wrong number of operands: got 0, want at least 1"),
            bad(Concat(2), "fp16[2,3]", says="concat: no such axis: got 2 for x fp16[2,3]"),
            bad(
                Concat(0),
                "fp16[2,3]",
                "fp16[2,4]",
                says="concat: sizes differ: got fp16[2,3] and fp16[2,4], "
                "want equal sizes but on axis 0",
            ),
            bad(Concat(0), "fp16[2,3]", "fp16[3]", says="concat: sizes differ"),
            bad(Concat(0), "fp16[2]", "fp32[2]", says="concat: element types differ"),
            bad(Concat(0), "fp16[]", "fp16[]", says="concat: a scalar has no axes"),
        ),
    ),
}

FOREIGN_ROWS: dict[str, Row] = {
    name: row
    for path in sorted((Path(__file__).parent / "foreign_samples").glob("*.py"))
    for name, row in import_module(f"ops.foreign_samples.{path.stem}").ROWS.items()
}
ROWS: dict[str, Row] = CORE_ROWS | FOREIGN_ROWS

SAMPLES: tuple[Sample, ...] = tuple(
    sample.of(dtype) if dtype else sample
    for row in ROWS.values()
    for sample in row.samples
    for dtype in (row.dtypes or (None,))
)
"""Every sample of every row, in each of the row's dtypes."""
ERRORS: tuple[Bad, ...] = tuple(error for row in ROWS.values() for error in row.errors)
