"""Type rules that rows share, each with its error."""

from __future__ import annotations

import math

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Op, Types
from orion_ane.types import MAX_RANK, DType, TensorType

ARITHMETIC = (DType.FP16, DType.FP32, DType.INT32)
FLOATS = (DType.FP16, DType.FP32)
CHOSEN = (*FLOATS, DType.INT32, DType.BOOL)


def typed(op: Op, dtype: DType, shape: tuple[int, ...]) -> TensorType:
    """The result's type, or what no tensor can be as an error of the row."""
    try:
        return TensorType(dtype, shape)
    except ShapeError as error:
        raise ShapeError(op.name, error.what, got=error.got, want=error.want) from None


def want_dtypes(op: Op, x: TensorType, dtypes: tuple[DType, ...]) -> None:
    """Refuse element types that the row does not compute on."""
    if x.dtype not in dtypes:
        raise ShapeError(
            op.name,
            "element type not supported",
            got=x,
            want=" or ".join(map(str, dtypes)),
            hint="cast it first",
        )


def want_same_dtype(op: Op, x: TensorType, y: TensorType, names: str = "xy") -> None:
    """Refuse operands of two element types: MIL does not promote."""
    if x.dtype != y.dtype:
        got = f"{names[0]} {x} and {names[1]} {y}"
        raise ShapeError(op.name, "element types differ", got=got, hint="cast one side")


def want_held(op: Op, name: str, value: float, dtype: DType) -> None:
    """Refuse a float parameter that `dtype` rounds: the text could not say it.

    The builders (`clip`, `power`, …) round; a node is born only with what prints exactly.
    """
    if held(value, dtype) != value:
        raise ShapeError(
            op.name, f"{name} is not a value of {dtype}", got=value, hint="round it first"
        )


def held(value: float, dtype: DType) -> float:
    """`value` rounded to the float type `dtype`, to nearest even."""
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(dtype.numpy))


def rounded(where: str, value: float, x: TensorType) -> float:
    """`value` as x's float type holds it, for a builder.

    Raises:
        ShapeError: a finite value becomes infinite (case N01).
    """
    if not x.dtype.is_float:
        return value  # the row will refuse x itself
    near = held(value, x.dtype)
    if math.isfinite(value) and not math.isfinite(near):
        limit = float(np.finfo(x.dtype.numpy).max)
        raise ShapeError(where, f"does not fit {x.dtype}", got=value, want=f"at most {limit}")
    return near


def unary(op: Op, args: Types) -> TensorType:
    """The lone operand's type."""
    want_count(op, args, 1)
    return args[0]


def want_rank(op: Op, shape: tuple[int, ...]) -> None:
    """Refuse a shape of more axes than a tensor may have."""
    if len(shape) > MAX_RANK:
        raise ShapeError(op.name, "rank too high", got=len(shape), want=f"at most {MAX_RANK}")


def want_count(op: Op, args: Types, count: int) -> None:
    """Refuse another number of operands than `count`."""
    if len(args) != count:
        raise ShapeError(op.name, "wrong number of operands", got=len(args), want=count)


def broadcast(op: Op, *types: TensorType, skip: int = 0) -> tuple[int, ...]:
    """The shape that numpy's rules give the operands, the last `skip` axes left out."""
    if len({t.shape for t in types}) == 1:
        return types[0].shape[: types[0].rank - skip]
    rank = max(t.rank for t in types)
    shape = []
    for axis in range(-rank, -skip):
        sizes = {t.shape[axis] for t in types if -axis <= t.rank} - {1}
        if len(sizes) > 1:
            raise ShapeError(
                op.name,
                f"sizes do not broadcast on axis {axis}",
                got=" and ".join(map(str, types)),
                want="equal sizes or 1",
            )
        shape.append(sizes.pop() if sizes else 1)
    return tuple(shape)


def axis_of(op: Op, axis: int, x: TensorType) -> int:
    """`axis` counted from the front."""
    if x.rank == 0:
        raise ShapeError(op.name, "a scalar has no axes", got=f"axis {axis} for x {x}")
    if not -x.rank <= axis < x.rank:
        raise ShapeError(
            op.name, "no such axis", got=f"{axis} for x {x}", want=f"{-x.rank} to {x.rank - 1}"
        )
    return axis % x.rank


def axes_of(op: Op, axes: tuple[int, ...], x: TensorType) -> tuple[int, ...]:
    """`axes` counted from the front; each at most once, at least one."""
    if not axes:
        raise ShapeError(op.name, "no axes", got=f"() for x {x}", want="at least one")
    found = tuple(axis_of(op, axis, x) for axis in axes)
    if len(set(found)) != len(found):
        raise ShapeError(op.name, "an axis is given twice", got=f"{axes} for x {x}")
    return found


def front(axes: tuple[int, ...], x: TensorType) -> tuple[int, ...]:
    """`axes` counted from the front, so that equal ops compare equal.

    What x does not have stays as it is, for the row to refuse as the caller wrote it.
    """
    return tuple(axis + x.rank if -x.rank <= axis < 0 else axis for axis in axes)
