"""Constants in text: named and typed in device form, in line and untyped in short form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from orion_ane.errors import MilError
from orion_ane.ir.spelling import Literal, Scalar
from orion_ane.mil.dialect import Dialect
from orion_ane.mil.lex import quoted
from orion_ane.ops.leaf import Const
from orion_ane.types import Array, DType, TensorType

Payload: TypeAlias = Const | str | tuple[()]
"""A constant of a text: a value, a string, or the empty list, which no value is."""

OWN_TYPE = frozenset({"epsilon"})
"""Parameters that may be fp32 beside an fp16 operand, from iOS17 on (MIL reference, 3)."""


def payload(op: str, key: str, literal: Literal, first: TensorType | None, opset: int) -> Payload:
    """A parameter as a constant: a float in the type of the first operand, rounded to nearest.

    A parameter that may have a type of its own gets fp32 where fp16 would change it.

    Raises:
        MilError: the value does not fit the type, or would become 0 in it.
    """
    if isinstance(literal, str):
        return literal
    elements = literal if isinstance(literal, tuple) else (literal,)
    if not elements:
        return ()
    shape = (len(elements),) if isinstance(literal, tuple) else ()
    if all(isinstance(e, bool) for e in elements):
        return Const(TensorType(DType.BOOL, shape), np.array(elements, np.bool_).tobytes())
    if all(isinstance(e, int) for e in elements):
        return Const(TensorType(DType.INT32, shape), _whole(op, key, elements, DType.INT32))
    numbers = [float(e) for e in elements if isinstance(e, int | float)]
    if len(numbers) != len(elements) or (first is not None and first.dtype is DType.BOOL):
        raise MilError(op, f"{key} has no constant of MIL", got=literal)
    dtype = DType.FP32 if first is None else first.dtype
    if not dtype.is_float:
        if any(number != int(number) for number in numbers):
            raise MilError(op, f"{key} does not fit {dtype}", got=literal)
        return Const(TensorType(dtype, shape), _whole(op, key, [int(n) for n in numbers], dtype))
    if key in OWN_TYPE and opset >= 17 and _narrow(numbers, dtype).tolist() != numbers:
        dtype = DType.FP32
    narrow = _narrow(numbers, dtype)
    wide = np.array(numbers)
    if (np.isfinite(wide) & ~np.isfinite(narrow)).any() or ((wide != 0) & (narrow == 0)).any():
        raise MilError(op, f"{key} does not fit {dtype}", got=literal)
    return Const(TensorType(dtype, shape), narrow.tobytes())


def _whole(op: str, key: str, elements: Sequence[Scalar], dtype: DType) -> bytes:
    try:
        return np.array(elements, dtype.numpy).tobytes()
    except OverflowError:
        raise MilError(op, f"{key} does not fit {dtype}", got=elements) from None


def _narrow(numbers: Sequence[float], dtype: DType) -> Array:
    with np.errstate(over="ignore"):
        return np.array(numbers).astype(dtype.numpy)


def device_text(constant: Payload, dialect: Dialect) -> tuple[str, str]:
    """The type of a constant, and its value with the type."""
    if isinstance(constant, str):
        of, value = dialect.scalar("string"), quoted(constant)
    elif isinstance(constant, tuple):
        of, value = "tensor<int32, [0]>", "[]"
    else:
        of, value = dialect.type(constant.of), _nested(map(_exact, _elements(constant)), constant)
    return of, f"{of}({value})"


def short_text(constant: Payload, *, typed: bool) -> str:
    """A constant in line."""
    if isinstance(constant, str):
        return quoted(constant)
    if isinstance(constant, tuple):
        return "[]"
    value = _nested(_plain(constant), constant)
    if not typed:
        return value
    of = constant.of
    if not of.shape:
        return f"{of.dtype}({value})"
    return f"tensor<{of.dtype}, [{','.join(map(str, of.shape))}]>({value})"


def _elements(constant: Const) -> list[Scalar]:
    found: list[Scalar] = constant.value.ravel().tolist()
    return found


def _exact(element: Scalar) -> str:
    """An element as the device reads it: floats are C's hex floats, which lose nothing."""
    if isinstance(element, bool):
        return str(element).lower()
    if not isinstance(element, float) or not np.isfinite(element):
        return str(element)
    mantissa, exponent = element.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def _plain(constant: Const) -> Iterable[str]:
    """Elements as people read them: the shortest decimal that gives the same value."""
    if not constant.of.dtype.is_float:
        return map(_exact, _elements(constant))
    flat = constant.value.ravel()
    texts = [str(element) for element in flat]
    back = np.array([float(text) for text in texts]).astype(flat.dtype)
    same = (back == flat) | np.isnan(flat)
    return (t if s else repr(float(e)) for t, s, e in zip(texts, same, flat, strict=True))


def _nested(texts: Iterable[str], constant: Const) -> str:
    rows = list(texts)
    for size in reversed(constant.of.shape):
        rows = [f"[{', '.join(rows[i : i + size])}]" for i in range(0, len(rows), size)]
    return rows[0]
