"""Surfaces: how values reach the ports where their order or their rows are not the device's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orion_ane.ane.layout import ROW_BYTES, row_stride, surface_bytes, to_surface
from orion_ane.ane.limits.subject import Ports
from orion_ane.ane.targets import Binding
from orion_ane.types import Array, TensorType

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Side:
    """The ports of one side, and what happens to their surfaces.

    Attributes:
        ports: names and types, as declared: the order in which a caller gives surfaces.
        bound: the places of the ports in the order in which the device takes surfaces.
        is_packed: rows that are not whole lie one behind the other, and the device steps over
            them by whole ones; those below 64 bytes it does not move at all.
        zeroed: ports that hold zeros.
    """

    ports: Ports
    bound: tuple[int, ...]
    is_packed: bool = False
    zeroed: frozenset[str] = frozenset()

    def enter(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """What the device reads at each port, of the values that a caller gives."""
        surfaces = [self._laid_out(values[name]) for name, _ in self.ports]
        met = {self.ports[place]: s for place, s in zip(self.bound, surfaces, strict=True)}
        return {name: self._seen(name, met[name, of], of) for name, of in self.ports}

    def leave(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """What a caller finds in each surface, of the values that the device writes."""
        written = [to_surface(values[self.ports[place][0]]) for place in self.bound]
        found = {}
        for (name, of), surface in zip(self.ports, written, strict=True):
            held = _fitted(surface, surface_bytes(of))
            is_narrow = self.is_packed and not _is_whole(of)
            packed = held[: of.nbytes] if is_narrow else _rows(held, of)
            found[name] = self._as_is(name, packed, of)
        return found

    def _laid_out(self, value: Array) -> Bytes:
        """A caller's surface."""
        of = TensorType.of(value)
        if not self.is_packed or _is_whole(of):
            return to_surface(value)
        packed = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return _fitted(packed, surface_bytes(of))

    def _seen(self, name: str, surface: Bytes, of: TensorType) -> Array:
        return self._as_is(name, _rows(_fitted(surface, surface_bytes(of)), of), of)

    def _as_is(self, name: str, packed: Bytes, of: TensorType) -> Array:
        """The bytes of a value's rows as that value."""
        is_lost = self.is_packed and _row_bytes(of) < ROW_BYTES
        if name in self.zeroed or is_lost:
            return np.zeros(of.shape, of.dtype.numpy)
        kept = np.ascontiguousarray(packed)
        if of.dtype.numpy == np.bool_:
            return (kept != 0).reshape(of.shape)
        return kept.view(of.dtype.numpy).reshape(of.shape)


def order(ports: Ports, binding: Binding) -> tuple[int, ...]:
    """The places of ports in the order in which they meet the surfaces of a request."""
    places = range(len(ports))
    match binding:
        case "names":
            return tuple(sorted(places, key=lambda place: ports[place][0]))
        case "names@output":
            return tuple(sorted(places, key=lambda place: f"{ports[place][0]}@output"))
        case "sizes":
            return tuple(sorted(places, key=lambda place: surface_bytes(ports[place][1])))
    return tuple(places)


def _row_bytes(of: TensorType) -> int:
    return (of.shape[-1] if of.shape else 1) * of.dtype.itemsize


def _is_whole(of: TensorType) -> bool:
    return _row_bytes(of) % ROW_BYTES == 0


def _fitted(surface: Bytes, size: int) -> Bytes:
    """The first bytes of a surface; behind its end there are zeros."""
    if surface.size >= size:
        return surface[:size]
    return np.concatenate([surface, np.zeros(size - surface.size, np.uint8)])


def _rows(surface: Bytes, of: TensorType) -> Bytes:
    """The bytes of a value's rows, each at a multiple of 64."""
    return surface.reshape(-1, row_stride(of))[:, : _row_bytes(of)].reshape(-1)
