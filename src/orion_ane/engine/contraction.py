"""Gradients of weights: products over lanes, added where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled
from orion_ane.engine.plan import code, gemm, kernels, layout, tile_sizes, tiles
from orion_ane.engine.threads import Threads
from orion_ane.types import Array

SOURCES = (code, gemm, kernels, lanes, layout, tile_sizes, tiles)
STRIPS = 4 * tile_sizes.STRIPS  # that one thread multiplies at a time
LAID = 12 * tile_sizes.PANEL  # rows that one thread lays out at a time


@dataclass(frozen=True, eq=False)
class Outer:
    """to [O, I] += dy [O, S] xᵀ, with x [I, S].

    `dy` and `x` are packed, fp16 or fp32; rows of `to`, in fp32, may lie apart from each other.
    """

    dy: Array
    x: Array
    to: Array


@compiled(sources=SOURCES)
def _lay(x: int, is_half: int, k: int, rows: int, to: int) -> None:
    """Panels of so many rows of x, each of k numbers."""
    one: Any = np.int64(1)
    size = 4 - 2 * is_half
    for at in range(0, rows, tile_sizes.PANEL):
        width = min(tile_sizes.PANEL, rows - at)
        gemm.lay_panel(x + size * at * k, is_half, (one, k), k, width, to + 4 * at * k)


@compiled(sources=SOURCES)
def _add(
    dy: int,
    is_half: int,
    panels: int,
    to: int,
    sizes: tuple[int, int, int],
    pitch: int,
    part: tuple[int, int],
    scratch: int,
) -> None:
    """Some strips of a sum's rows."""
    first, last = part
    one: Any = np.int64(1)
    steps = sizes[2], one
    gemm.multiply(dy, is_half, steps, panels, to, sizes, pitch, one, first, last, scratch)


def add_all(products: Sequence[Outer], threads: Threads) -> None:
    """Compute products of which no two add to the same place; how many threads does not show."""
    inputs = {id(product.x): product.x for product in products}
    panels = {key: _room(x) for key, x in inputs.items()}
    lays = [(key, at) for key, x in inputs.items() for at in range(0, len(x), LAID)]

    def lay(i: int) -> None:
        key, at = lays[i]
        x, to = inputs[key], panels[key]
        k, rows = x.shape[1], min(LAID, len(x) - at)
        _lay(x[at:].ctypes.data, _is_half(x), k, rows, to.ctypes.data + 4 * at * k)

    parts = [
        (product, at, min(at + STRIPS, strips))
        for product in products
        for strips in [-(-len(product.dy) // tile_sizes.ROWS)]
        for at in range(0, strips, STRIPS)
    ]

    def add(i: int) -> None:
        product, first, last = parts[i]
        scratch = np.empty(tile_sizes.SCRATCH_BYTES // 4, np.float32)
        dy, to = product.dy, product.to
        sizes = len(dy), to.shape[1], dy.shape[1]
        place, pitch = panels[id(product.x)].ctypes.data, to.strides[0] // 4
        _add(
            dy.ctypes.data, _is_half(dy), place, to.ctypes.data, sizes, pitch, (first, last),
            scratch.ctypes.data,
        )  # fmt: skip

    threads.each(lay, range(len(lays)))
    threads.each(add, range(len(parts)))


def _room(x: Array) -> Array:
    """Memory for the panels of x, at a multiple of 64 bytes."""
    count = -(-len(x) // tile_sizes.PANEL) * tile_sizes.PANEL * x.shape[1]
    held = np.empty(count + 16, np.float32)
    start = -held.ctypes.data % 64 // 4
    return held[start : start + count]


def _is_half(x: Array) -> int:
    return int(x.dtype.itemsize == 2)
