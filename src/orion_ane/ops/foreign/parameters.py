"""What foreign rows share: parameters with a float type of their own, and whole numbers."""

from __future__ import annotations

import math
from typing import overload

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Node, Op
from orion_ane.ir.spelling import MilArgs
from orion_ane.ops.leaf import const
from orion_ane.ops.rules import held, want_held
from orion_ane.ops.shape import Cast
from orion_ane.types import Array, DType


def want_own(op: Op, name: str, value: float) -> None:
    """Refuse a parameter that is no finite value of fp32, its type where x's does not hold it.

    MIL lets such parameters have a float type of their own since iOS17.
    """
    if not math.isfinite(value):
        raise ShapeError(op.name, f"{name} is not finite", got=value)
    want_held(op, name, value, DType.FP32)


def fp32(value: float) -> float:
    """`value` as fp32 holds it."""
    return held(value, DType.FP32)


def own(args: MilArgs, name: str, x: Node, default: float) -> float:
    """The float parameter `name`; its default is in x's type, as MIL's builders have it."""
    of = x.type.dtype
    return args.number(name, held(default, of) if of.is_float else default)


@overload
def times(dy: Node, value: float) -> Node: ...
@overload
def times(dy: None, value: float) -> None: ...
def times(dy: Node | None, value: float) -> Node | None:
    """`dy` times a number, rounded to its type."""
    return None if dy is None else dy * near(value, dy)


def near(value: float, like: Node) -> Node:
    """The number as a constant of the float type of `like`; infinite where that is exceeded."""
    return const(held(value, like.type.dtype), like.type.dtype)


def as_type(value: Array, dtype: np.dtype) -> Array:
    """Floats as a type of x: floats are rounded, integers cut off, saturated, and 0 for NaN."""
    if dtype.kind == "f":
        return value.astype(dtype)
    return Cast(DType.of(dtype)).eval((value,))
