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
from orion_ane.types import DType, TensorType

Payload: TypeAlias = Const | str | tuple[()]
"""A constant of a text: a value, a string, or the empty list, which no value is."""

OWN_TYPE = frozenset({"epsilon", "alpha", "beta", "k"})
"""Parameters that may be fp32 beside an fp16 operand, from iOS17 on (MIL reference, 3)."""


def payload(op: str, key: str, literal: Literal, first: TensorType | None, opset: int) -> Payload:
    """A parameter as a constant: a float in the type of the first operand, exactly.

    A parameter that may have a type of its own is fp32 where fp16 would change it.

    Raises:
        MilError: no type that the parameter may have holds the value.
    """
    if isinstance(literal, str):
        return literal
    elements = literal if isinstance(literal, tuple) else (literal,)
    if not elements:
        return ()
    shape = (len(elements),) if isinstance(literal, tuple) else ()
    for dtype in _dtypes(key, elements, first, opset):
        data = _held(elements, dtype)
        if data is not None:
            return Const(TensorType(dtype, shape), data)
    raise MilError(op, f"{key} does not fit its type", got=literal, want=first)


def _dtypes(
    key: str, elements: Sequence[Scalar], first: TensorType | None, opset: int
) -> tuple[DType, ...]:
    """The element types that a parameter may have, in the order of preference."""
    if all(isinstance(element, bool) for element in elements):
        return (DType.BOOL,)
    if all(isinstance(element, int) for element in elements):
        return (DType.INT32,)
    natural = DType.FP32 if first is None else first.dtype
    return (natural, DType.FP32) if key in OWN_TYPE and opset >= 17 else (natural,)


def _held(elements: Sequence[Scalar], dtype: DType) -> bytes | None:
    """The elements in the type, or None where it has not all of them."""
    try:
        with np.errstate(over="ignore"):
            value = np.array(elements, dtype.numpy)
    except (OverflowError, ValueError):  # an integer too large; not a number
        return None
    pairs = zip(value.tolist(), elements, strict=True)
    same = all(v == e or (v != v and e != e) for v, e in pairs)  # noqa: PLR0124 (NaN is itself)
    return value.tobytes() if same else None


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
    """Elements as people read them: the shortest decimal that gives the same value.

    The shortest of its type is not always one: 7.038531e-26, read as float64, rounds to another.
    """
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
