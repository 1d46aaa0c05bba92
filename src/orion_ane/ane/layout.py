"""How values lie in the device's memory: columns as ports, and rows of whole 64 bytes."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from orion_ane.errors import ShapeError
from orion_ane.types import Array, TensorType

ROW_BYTES = 64
"""A surface's last axis is padded to a multiple of this (ane-facts, 0.5; case A21)."""


def pack(rows: Array, lanes: int | None = None) -> Array:
    """[S, C] as a port [1, C, 1, lanes]; lanes past S (by default none) are zero.

    Raises:
        ShapeError: not a matrix, or more rows than lanes.
    """
    if rows.ndim != 2:
        raise ShapeError("layout", "not a matrix", got=list(rows.shape), want="[S, C]")
    S, C = rows.shape
    wide = S if lanes is None else lanes
    if wide < S:
        raise ShapeError("layout", "more rows than lanes", got=S, want=f"at most {wide}")
    port = np.zeros((1, C, 1, wide), rows.dtype)
    port[0, :, 0, :S] = rows.T
    return port


def unpack(port: Array, count: int | None = None) -> Array:
    """The first `count` lanes (by default all) of a port [1, C, 1, lanes], as [S, C].

    Raises:
        ShapeError: not a port of that form, or fewer lanes than asked for.
    """
    if port.ndim != 4 or port.shape[0] != 1 or port.shape[2] != 1:
        raise ShapeError("layout", "not a packed port", got=list(port.shape), want="[1, C, 1, S]")
    lanes = port.shape[3]
    S = lanes if count is None else count
    if not 0 <= S <= lanes:
        raise ShapeError("layout", "more rows than lanes", got=S, want=f"at most {lanes}")
    return np.ascontiguousarray(port[0, :, 0, :S].T)


def row_stride(of: TensorType) -> int:
    """Bytes from one row (the last axis) of a surface to the next."""
    row = (of.shape[-1] if of.shape else 1) * of.dtype.itemsize
    return -(-row // ROW_BYTES) * ROW_BYTES


def surface_bytes(of: TensorType) -> int:
    """Bytes of a surface that holds a value of this type."""
    return prod(of.shape[:-1]) * row_stride(of)


def to_surface(value: Array) -> NDArray[np.uint8]:
    """A value's bytes as a surface holds them: each row starts at a multiple of 64."""
    of = TensorType.of(value)
    surface = np.zeros((surface_bytes(of) // row_stride(of), row_stride(of)), np.uint8)
    rows = np.ascontiguousarray(value).reshape(surface.shape[0], -1).view(np.uint8)
    surface[:, : rows.shape[1]] = rows
    return surface.ravel()


def from_surface(surface: NDArray[np.uint8], of: TensorType) -> Array:
    """The value of type `of` that a surface holds.

    Raises:
        ShapeError: the surface is not as large as such a value makes it.
    """
    if surface.size != surface_bytes(of):
        raise ShapeError(
            "layout", "wrong surface size", got=surface.size, want=f"{surface_bytes(of)} for {of}"
        )
    used = of.nbytes * row_stride(of) // surface.size
    rows = surface.reshape(-1, row_stride(of))[:, :used]
    return np.ascontiguousarray(rows).view(of.dtype.numpy).reshape(of.shape)
