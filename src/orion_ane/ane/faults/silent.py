"""Rows that give other values without a word, and which values these are.

Where a report says no more than that values are wrong, the wrongness here is the simplest one that
a comparison cannot miss; its line says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from orion_ane.ane.faults.kinds import (
    Args,
    Fault,
    Misbound,
    Miscomputed,
    Misread,
    Misstrided,
    Unchecked,
    Zeroed,
)
from orion_ane.ane.faults.spoilt import spoilt
from orion_ane.ane.limits.shapes import FUSED_ROWS, FUSED_SIDE
from orion_ane.ane.limits.spelling import FP16_MAX
from orion_ane.ane.limits.subject import Subject, is_scalar
from orion_ane.ir.node import Node
from orion_ane.mil.arguments import Argument
from orion_ane.mil.module import Statement
from orion_ane.mil.written import Constant
from orion_ane.types import Array

FIXED_POINT_MAX = 4094
"""Values are held times 16 in 16 bits where a slice or an int8 product moves them."""
ROUND_MAX = 1024
SOFTPLUS_MAX = 11.09
SMALLEST_NORMAL = 2.0**-14


def without(key: str) -> Misread:
    """The statement as if a parameter were not there."""
    return Misread(lambda _subject, _statement, args: {k: v for k, v in args.items() if k != key})


def constants(change: Callable[[float], float], *keys: str) -> Misread:
    """The statement with its float constants changed, those of some parameters or all."""

    def changed(value: Argument) -> Argument:
        if isinstance(value, tuple):
            return tuple(_changed(part, change) for part in value)
        return _changed(value, change)

    def read(_subject: Subject, _statement: Statement, args: Args) -> Args:
        return {k: changed(v) if not keys or k in keys else v for k, v in args.items()}

    return Misread(read)


def _changed(value: Node | Constant, change: Callable[[float], float]) -> Node | Constant:
    if not isinstance(value, Constant) or not value.has_floats:
        return value
    made = tuple(change(e) if isinstance(e, float) else e for e in value.elements)
    return replace(value, elements=made)


def _in_fp16(element: float) -> float:
    return element if abs(element) <= FP16_MAX else float(np.copysign(np.inf, element))


def _as_mask(element: float) -> float:
    return -np.inf if element <= -FP16_MAX / 2 else element


def _flushed(element: float) -> float:
    return element if abs(element) >= SMALLEST_NORMAL else 0.0


def clamped(value: Array, *_: Array) -> Array:
    """Values beyond 4094 are infinite."""
    return np.where(np.abs(value) > FIXED_POINT_MAX, np.copysign(np.inf, value), value)


def _clamp_activations(subject: Subject, statement: Statement, args: Args) -> Args:
    """Whatever is not the widened weight."""
    widened = {
        key
        for key, value in statement.args.items()
        if subject.op_of(value).startswith("constexpr_")
    }

    def clamp(key: str, value: Argument) -> Argument:
        is_activation = key in ("x", "y", "weight") and key not in widened
        return spoilt(clamped, value) if is_activation and isinstance(value, Node) else value

    return {key: clamp(key, value) for key, value in args.items()}


def _drop_scalar(_subject: Subject, _statement: Statement, args: Args) -> Args:
    """A product by 1 instead of the scalar."""

    def one(value: Argument) -> Argument:
        if not isinstance(value, Constant) or not is_scalar(value):
            return value
        return replace(value, elements=tuple(type(e)(1) for e in value.elements))

    return {key: one(value) for key, value in args.items()}


def _late(value: Array) -> Array:
    """The elements one place late: which wrong ones come is not reported."""
    return np.roll(value, 1)


def _one_further(value: Array) -> Array:
    """1024 gives 1025 and -2047 gives -2048."""
    return np.where(np.abs(value) >= ROUND_MAX, value + np.sign(value), value)


def _softplus(value: Array, x: Array) -> Array:
    return np.where(x >= SOFTPLUS_MAX, np.zeros((), value.dtype), value)


def _fused(value: Array, query: Array, key: Array) -> Array:
    """Zeros behind the first batch and the last position that fits: what comes is not reported."""
    rows, columns = query.shape[-2], key.shape[-2]
    fitting = FUSED_SIDE - 1 if min(rows, columns) >= FUSED_SIDE else FUSED_ROWS
    found = np.zeros_like(value)
    if max(rows, columns) > FUSED_ROWS >= rows:
        fitting = 0  # the keys are too many for any query
    found[:1, ..., :fitting, :] = value[:1, ..., :fitting, :]
    return found


SILENT: dict[str, Fault] = {
    "ANE003": Misbound("output"),
    "ANE006": without("attn_mask"),
    "ANE008": Unchecked(),
    "ANE019": Misbound("input"),
    "ANE114": constants(_as_mask, "x", "y"),
    "ANE132": Misstrided(),
    "ANE133": Misbound("input"),
    "ANE134": Misbound("output"),
    "ANE135": Misbound("output"),
    "ANE136": Misbound("input"),
    "ANE137": Unchecked(),
    "ANE141": constants(_in_fp16),
    "ANE151": Miscomputed(_fused, ("query", "key")),
    "ANE172": Miscomputed(clamped),
    "ANE173": Miscomputed(_late),
    "ANE177": constants(_flushed),
    "ANE182": Miscomputed(_one_further),
    "ANE183": Miscomputed(_softplus, ("x",)),
    "ANE184": Misread(_clamp_activations),
    "ANE187": Misread(_drop_scalar),
    "ANE215": Miscomputed(np.zeros_like),
    "ANE216": Miscomputed(np.zeros_like),
    "ANE217": Zeroed(),
}
"""Rows that a device keeps quiet about."""
