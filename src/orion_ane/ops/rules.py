"""Type rules that rows share, each with its error."""

from __future__ import annotations

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Op, Types
from orion_ane.types import DType, TensorType

ARITHMETIC = (DType.FP16, DType.FP32, DType.INT32)
FLOATS = (DType.FP16, DType.FP32)


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


def want_same_dtype(op: Op, x: TensorType, y: TensorType) -> None:
    """Refuse operands of two element types: MIL does not promote."""
    if x.dtype != y.dtype:
        raise ShapeError(
            op.name, "element types differ", got=f"x {x} and y {y}", hint="cast one side"
        )


def unary(op: Op, args: Types, count: int = 1) -> TensorType:
    """The lone operand's type."""
    want_count(op, args, count)
    return args[0]


def want_count(op: Op, args: Types, count: int) -> None:
    """Refuse another number of operands than `count`."""
    if len(args) != count:
        raise ShapeError(op.name, "wrong number of operands", got=len(args), want=count)


def broadcast(op: Op, *types: TensorType) -> tuple[int, ...]:
    """The shape that numpy's rules give the operands."""
    rank = max(t.rank for t in types)
    shape = []
    for axis in range(-rank, 0):
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
    if not -x.rank <= axis < x.rank:
        raise ShapeError(
            op.name, "no such axis", got=f"{axis} for x {x}", want=f"{-x.rank} to {x.rank - 1}"
        )
    return axis % x.rank


def axes_of(op: Op, axes: tuple[int, ...], x: TensorType) -> tuple[int, ...]:
    """`axes` counted from the front; each at most once, at least one."""
    found = tuple(axis_of(op, axis, x) for axis in axes)
    if not found or len(set(found)) != len(found):
        raise ShapeError(op.name, "axes must be distinct", got=axes, want="each axis once")
    return found
