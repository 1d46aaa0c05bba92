"""Rows of one or two operands, element by element."""

from __future__ import annotations

from math import inf, nan

from ops.sampling import (
    ARITHMETIC,
    FLOATS,
    Operand,
    Row,
    above,
    bad,
    binary,
    curve,
    ok,
    without_scalars,
)

from orion_ane.ir import Op
from orion_ane.ops.foreign.binary import (
    Equal,
    FloorDiv,
    Greater,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Minimum,
    Mod,
    NotEqual,
    PowBy,
    WholeDiv,
)
from orion_ane.ops.foreign.parameters import fp32
from orion_ane.ops.foreign.unary import (
    Abs,
    Acos,
    Asin,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp2,
    Floor,
    Inverse,
    Log,
    LogicalNot,
    Round,
    Sign,
    Sin,
    Sinh,
    Square,
    Tan,
    Threshold,
)
from orion_ane.types import DType

BOOL, INT32 = DType.BOOL, DType.INT32


def numbers(op: Op, lo: float = -2.0, hi: float = 2.0, *more, stops=(), errors=()) -> Row:
    """A curve that takes integers."""
    return Row(
        ARITHMETIC,
        (
            *(
                ok(op, Operand(of, lo, hi), stops=stops)
                for of in ("T[3]", "T[]", "T[2,1,3]", "T[1,2,1,2,3]")
            ),
            *more,
        ),
        (
            bad(op, says=f"{op.name}: wrong number of operands: got 0, want 1"),
            bad(op, "bool[2]", says=f"{op.name}: element type not supported: got bool[2]"),
            *errors,
        ),
    )


def step(op: Op) -> Row:
    """A float curve without a slope."""
    return Row(
        FLOATS,
        tuple(ok(op, above(-3.0, of), stops=(0,)) for of in ("T[5]", "T[]", "T[2,1,3]")),
        (bad(op, "int32[2]", says=f"{op.name}: element type not supported: got int32[2]"),),
    )


def logic(op: Op) -> Row:
    pairs = (("T[2,3]", "T[2,3]"), ("T[]", "T[2]"), ("T[2,1,4]", "T[3,1]"), ("T[1,2,1,2,1]", "T[]"))
    return Row(
        (BOOL,),
        tuple(ok(op, *pair) for pair in pairs),
        (
            bad(op, "bool[2]", says=f"{op.name}: wrong number of operands: got 1, want 2"),
            bad(op, "bool[2]", "fp16[2]", says="not supported: got fp16[2], want bool"),
            bad(op, "bool[2]", "bool[3]", says=f"{op.name}: sizes do not broadcast on axis -1"),
        ),
    )


def of_eps(make, lo: float) -> Row:
    name = make(0.0).name
    return curve(
        make(0.0),
        lo,
        3.0,
        ok(make(0.5), above(0.25, "T[2,3]")),
        ok(make(2.0**-20), above(0.5, "T[2,3]")),
        errors=(
            bad(make(inf), "fp16[2]", says=f"{name}: eps is not finite: got inf"),
            bad(make(1e-5), "fp32[2]", says=f"{name}: eps is not a value of fp32: got 1e-05"),
        ),
    )


ROWS: dict[str, Row] = {
    "abs": numbers(Abs()),
    "sign": numbers(Sign(), stops=(0,)),
    "square": numbers(Square()),
    "exp2": numbers(Exp2()),
    "ceil": step(Ceil()),
    "floor": step(Floor()),
    "round": step(Round()),
    "logical_not": Row(
        (BOOL,),
        tuple(ok(LogicalNot(), of) for of in ("T[3]", "T[]", "T[2,1,3]")),
        (bad(LogicalNot(), "fp16[2]", says="logical_not: element type not supported"),),
    ),
    "sin": curve(Sin()),
    "cos": curve(Cos()),
    "tan": curve(Tan(), -1.0, 1.0),
    "asin": curve(Asin(), -0.75, 0.75),
    "acos": curve(Acos(), -0.75, 0.75),
    "atan": curve(Atan()),
    "sinh": curve(Sinh()),
    "cosh": curve(Cosh()),
    "atanh": without_scalars(curve(Atanh(), -0.75, 0.75)),
    "erf": curve(Erf(), -3.0, 3.0),
    "log": of_eps(Log, 0.25),
    "inverse": of_eps(Inverse, 0.5),
    "threshold": numbers(
        Threshold(-1.0),
        -2.0,
        2.0,
        ok(Threshold(1.0), "T[2,3]"),
        errors=(
            bad(Threshold(nan), "fp16[2]", says="threshold: alpha is not finite: got nan"),
            bad(Threshold(fp32(0.1)), "fp16[2]", says="threshold: alpha is not a value of fp16"),
            bad(Threshold(0.5), "int32[2]", says="threshold: alpha is not a value of int32"),
        ),
    ),
    "equal": binary(Equal(), stops=(0, 1)),
    "not_equal": binary(NotEqual(), stops=(0, 1)),
    "greater": binary(Greater(), stops=(0, 1)),
    "less": binary(Less(), stops=(0, 1)),
    "less_equal": binary(LessEqual(), stops=(0, 1)),
    "logical_and": logic(LogicalAnd()),
    "logical_or": logic(LogicalOr()),
    "logical_xor": logic(LogicalXor()),
    "minimum": binary(Minimum()),
    "floor_div": binary(FloorDiv(), y_lo=1.0, stops=(0, 1)),
    "mod": binary(Mod(), y_lo=1.0),
    "pow_by": Row(
        ARITHMETIC,
        (
            ok(PowBy(), above(0.5, "T[2,3]"), above(0.0, "T[2,3]")),
            ok(PowBy(), above(1.0, "T[2,1,4]"), above(0.0, "T[3,1]")),
            ok(PowBy(), above(1.0, "T[]"), above(0.0, "T[2]")),
            ok(PowBy(), above(1.0, "T[4]"), above(0.0, "T[1,2,1,2,4]")),
        ),
        (
            bad(PowBy(), "fp16[2]", says="pow_by: wrong number of operands: got 1, want 2"),
            bad(PowBy(), "fp16[2]", "fp32[2]", says="pow_by: element types differ"),
            bad(PowBy(), "bool[2]", "bool[2]", says="pow_by: element type not supported"),
        ),
    ),
    "whole_div": Row(
        (INT32,),
        (
            ok(WholeDiv(), above(-9.0, "T[2,3]", 9.0), above(1.0, "T[2,3]")),
            ok(WholeDiv(), above(-9.0, "T[2,1,4]", 9.0), above(-4.0, "T[3,1]", -1.0)),
            ok(WholeDiv(), above(-9.0, "T[]", 9.0), above(1.0, "T[2]")),
        ),
        (
            bad(WholeDiv(), "int32[2]", says="whole_div: wrong number of operands: got 1, want 2"),
            bad(WholeDiv(), "fp16[2]", "fp16[2]", says="whole_div: element type not supported"),
        ),
    ),
}
