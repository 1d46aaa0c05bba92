"""MIL's `matmul` with a constant of a float type of its own, as it may be since iOS17."""

from __future__ import annotations

from orion_ane.ir.node import Node, Op
from orion_ane.ir.spelling import MilArgs
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.leaf import Const, Weight
from orion_ane.ops.linear import Matmul


def read_matmul(args: MilArgs) -> Node:
    """A product; a lone constant side takes the type of the other."""
    x, y = args.node("x"), args.node("y")
    x_is_fixed, y_is_fixed = (isinstance(side.op, Const | Weight) for side in (x, y))
    if y_is_fixed and not x_is_fixed:
        y = fitted(y, x)
    if x_is_fixed and not y_is_fixed:
        x = fitted(x, y)
    sides = {name: args.flag(name, default=False) for name in ("transpose_x", "transpose_y")}
    of = MilArgs("matmul", nodes={"x": x, "y": y}, literals=sides, tuples={}, opset=args.opset)
    return Matmul.read(of)


Op.readers["matmul"] = read_matmul
