"""Activations and reductions."""

from __future__ import annotations

from math import inf

from ops.sampling import (
    ARITHMETIC,
    FLOATS,
    INT32,
    Row,
    above,
    bad,
    curve,
    ok,
    reduction,
    without_scalars,
)

from orion_ane.ops.foreign.activation import (
    ClampedRelu,
    Elu,
    LeakyRelu,
    LinearActivation,
    Prelu,
    Relu6,
    ScaledTanh,
    SigmoidHard,
    Softplus,
    SoftplusParametric,
    Softsign,
    ThresholdedRelu,
)
from orion_ane.ops.foreign.reductions import (
    MeanOfWhole,
    ReduceArgmax,
    ReduceArgmin,
    ReduceL1Norm,
    ReduceL2Norm,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMin,
    ReduceProd,
    ReduceSumSquare,
)
from orion_ane.types import DType


def bent(make, *more) -> Row:
    """A row with numbers, of which the first is out of place in the errors."""
    name = make(0.5).name
    errors = (
        bad(make(inf), "fp16[2]", says=f"{name}: alpha is not finite: got inf"),
        bad(make(0.1), "fp32[2]", says=f"{name}: alpha is not a value of fp32: got 0.1"),
    )
    return curve(make(0.5), -2.0, 2.0, *more, errors=errors)


def by_channel(op, count: int, shapes=("T[2,3,4]", "T[1,3,2,2]", "T[1,3,1,2,1]")) -> Row:
    vectors = ("T[3]",) * count
    return Row(
        FLOATS,
        tuple(ok(op, x, *(above(0.25, v) for v in vectors)) for x in shapes),
        (
            bad(op, "fp16[1,3,2]", says=f"{op.name}: wrong number of operands: got 1"),
            bad(op, "fp16[1,3]", *["fp16[3]"] * count, says=f"{op.name}: rank does not fit"),
            bad(op, "fp16[1,3,2]", *["fp16[2]"] * count, says="alpha does not fit: got fp16[2]"),
            bad(op, "fp16[1,3,2]", *["fp32[3]"] * count, says=f"{op.name}: element types differ"),
        ),
    )


def folding(make, lo: float = -2.0, dtypes=ARITHMETIC, stops=()) -> Row:
    row = reduction(make, dtypes, stops)
    samples = tuple(
        ok(s.op, *(above(lo, x.type) for x in s.operands), stops=stops) for s in row.samples
    )
    return Row(dtypes, samples, row.errors)


def place(make) -> Row:
    name = make(0).name
    return Row(
        ARITHMETIC,
        (
            ok(make(0), "T[5]", stops=(0,)),
            ok(make(-1), "T[2,3]", stops=(0,)),
            ok(make(1, DType.UINT16), "T[1,4,1,3]", stops=(0,)),
        ),
        (
            bad(make(2), "fp16[4,5]", says=f"{name}: no such axis: got 2"),
            bad(make(0), "bool[4]", says=f"{name}: element type not supported"),
            bad(make(0, DType.INT8), "fp16[4]", says=f"{name}: not a type of places: got int8"),
            bad(make(0, DType.UINT16), "fp16[65537]", says=f"{name}: does not fit uint16"),
        ),
    )


ROWS: dict[str, Row] = {
    "relu6": curve(Relu6(), -2.0, 8.0),
    "softplus": curve(Softplus(), -6.0, 6.0),
    "softsign": curve(Softsign()),
    "leaky_relu": bent(LeakyRelu, ok(LeakyRelu(-2.0), "T[4]")),
    "elu": bent(Elu),
    "thresholded_relu": without_scalars(bent(ThresholdedRelu)),
    "clamped_relu": bent(lambda alpha: ClampedRelu(alpha, 1.0), ok(ClampedRelu(2.0, 0.25), "T[9]")),
    "linear_activation": bent(lambda alpha: LinearActivation(alpha, -1.5)),
    "scaled_tanh": bent(lambda alpha: ScaledTanh(alpha, 0.75)),
    "sigmoid_hard": bent(
        lambda alpha: SigmoidHard(alpha, 0.25), ok(SigmoidHard(-1.0, 0.5), "T[9]")
    ),
    # Core ML wants equal numbers at other ranks, and here they are drawn.
    "prelu": by_channel(Prelu(), 1, ("T[2,3,2,1]", "T[1,3,2,2]", "T[1,3,1,2]")),
    "softplus_parametric": by_channel(SoftplusParametric(), 2),
    "reduce_min": folding(ReduceMin, stops=(0,)),
    "reduce_prod": folding(ReduceProd, lo=0.5),
    "reduce_l1_norm": folding(ReduceL1Norm),
    "reduce_l2_norm": folding(ReduceL2Norm),
    "reduce_sum_square": folding(ReduceSumSquare),
    "reduce_log_sum": folding(ReduceLogSum, lo=1.0),
    "reduce_log_sum_exp": folding(ReduceLogSumExp),
    "mean_of_whole": Row(
        (INT32,),
        tuple(
            ok(MeanOfWhole(axes), x)
            for axes, x in (((0,), "T[3]"), ((-1,), "T[2,3]"), ((1, -1), "T[1,4,1,3]"))
        ),
        (
            bad(MeanOfWhole((0,)), "fp16[3]", says="mean_of_whole: element type not supported"),
            bad(MeanOfWhole((1,)), "int32[3]", says="mean_of_whole: no such axis"),
        ),
    ),
    "reduce_argmax": place(ReduceArgmax),
    "reduce_argmin": place(ReduceArgmin),
}
