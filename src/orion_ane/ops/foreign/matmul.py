"""MIL's `matmul` with a constant of a float type of its own, as it may be since iOS17."""

from __future__ import annotations

from orion_ane.ir.node import Node, Op
from orion_ane.ir.spelling import MilArgs
from orion_ane.ops.foreign.linear import numeric
from orion_ane.ops.leaf import Const, Weight
from orion_ane.ops.linear import Matmul
from orion_ane.ops.shape import cast


def read_matmul(args: MilArgs) -> Node:
    """A product; a lone constant side takes the type of the other.

    Integers times a constant of floats are computed in floats, and cut.
    """
    x, y = args.node("x"), args.node("y")
    x_is_fixed, y_is_fixed = (isinstance(side.op, Const | Weight) for side in (x, y))
    to = None
    if x_is_fixed != y_is_fixed:
        fixed, free = (x, y) if x_is_fixed else (y, x)
        to = free.type.dtype
        fixed = numeric(fixed, free)
        free = numeric(free, fixed)
        x, y = (fixed, free) if x_is_fixed else (free, fixed)
    sides = {name: args.flag(name, default=False) for name in ("transpose_x", "transpose_y")}
    of = MilArgs("matmul", nodes={"x": x, "y": y}, literals=sides, tuples={}, opset=args.opset)
    z = Matmul.read(of)
    return z if to in (None, z.type.dtype) else cast(z, to)


Op.readers["matmul"] = read_matmul
