"""What users feed and get, and the surfaces that hold it: larger, or of a smaller type.

A surface has the axes of its value, each at least as long; that of a scalar may have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def fed(ports: Sequence[Port], values: Mapping[str, Array]) -> dict[str, Array]:
    """The surfaces of all ports of a side by symbol, of values by name.

    Raises:
        BackendError: a value is missing, not of its port's type, or of no port.
    """
    found = {port.symbol: filled(port, values.get(port.name)) for port in ports}
    want_known(ports, values)
    return found


def want_known(ports: Sequence[Port], values: Mapping[str, Array]) -> None:
    """Refuse values of no port.

    Raises:
        BackendError: there is one.
    """
    if len(values) > len(ports):  # else one that is of no port leaves another without a value
        known = [port.name for port in ports]
        unknown = next(name for name in values if name not in known)
        raise BackendError(f"input {unknown}", "no such port", want=known or "no inputs")


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
