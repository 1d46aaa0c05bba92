"""What users feed and get, and the surfaces that hold it: larger, or of a smaller type.

A surface has the axes of its value, each at least as long; that of a scalar may have one.
"""

from __future__ import annotations

import numpy as np

from orion_ane.errors import BackendError, MilError
from orion_ane.mil.program import Port
from orion_ane.types import Array


def filled(port: Port, value: Array | None) -> Array:
    """The surface of a port with a value in it; the value itself where they have one type.

    Raises:
        BackendError: the value is missing, or not of the port's type.
    """
    if value is None:
        raise BackendError(f"input {port.name}", "is not fed", want=port.of)
    if not isinstance(value, np.ndarray):
        raise BackendError(
            f"input {port.name}", "is not an array", got=type(value).__name__, want=port.of
        )
    if value.dtype != port.of.dtype.numpy or value.shape != port.of.shape:
        got = f"{value.dtype}{list(value.shape)}"
        raise BackendError(f"input {port.name}", "has another type", got=got, want=port.of)
    if port.of == port.type:
        return value
    surface = np.zeros(port.type.shape, port.type.dtype.numpy)
    with np.errstate(over="ignore"):
        surface[_corner(port)] = value.reshape(_axes(port))
    return surface


def taken(port: Port, surface: Array) -> Array:
    """The value that a surface of a port holds; the surface itself where they have one type."""
    if port.of == port.type:
        return surface
    value = surface[_corner(port)].astype(port.of.dtype.numpy)
    return np.ascontiguousarray(value).reshape(port.of.shape)


def want_holds(port: Port) -> None:
    """Refuse a port whose surface cannot hold its value.

    Raises:
        MilError: an axis is too short, or is missing.
    """
    wanted, there = _axes(port), port.type.shape
    is_same = port.of == port.type
    if not is_same and (
        len(wanted) != len(there) or any(n > m for n, m in zip(wanted, there, strict=True))
    ):
        what = "the surface does not hold its value"
        raise MilError(f"port {port.name}", what, got=port.type, want=port.of)


def _axes(port: Port) -> tuple[int, ...]:
    """The axes of the value, as the surface has them."""
    return port.of.shape or (1,) * port.type.rank


def _corner(port: Port) -> tuple[slice, ...]:
    return tuple(slice(size) for size in _axes(port))
