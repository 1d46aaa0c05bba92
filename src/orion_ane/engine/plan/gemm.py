"""Wide products: the right side laid out in panels, the left one turned in strips as it is read.

fp16 is widened as it is laid out, so no weight is ever held whole in fp32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan import kernels
from orion_ane.engine.plan.layout import DEPTH
from orion_ane.engine.plan.tile_sizes import LANES, PANEL, ROWS, STRIP_BYTES, STRIPS
from orion_ane.engine.plan.tiles import (
    move_floats,
    move_halves,
    multiply_tile,
    turn_floats,
    turn_halves,
)

_STRIP = STRIP_BYTES  # a plain number, which numba compiles in


@compiled(is_part=True)
def _one_by_one(
    x: int, is_half: int, steps: tuple[int, int], depth: int, width: int, to: int, pitch: int
) -> None:
    """`width` numbers for each of `depth` steps of k."""
    down, across = steps
    size = 4 - 2 * is_half
    for k in range(depth):
        kernels.copy(x + size * k * down, is_half, across, to + 4 * k * pitch, width)


@compiled(is_part=True)
def _lay(
    x: int, is_half: int, steps: tuple[int, int], depth: int, width: int, to: int, pitch: int
) -> None:
    """`width` columns over `depth` steps of k at x: `pitch` numbers for each k.

    `steps` are from one k to the next and from one column to the next, in numbers.
    """
    down, across = steps
    size = 4 - 2 * is_half
    if width < pitch:
        kernels.fill(to, 0.0, depth * pitch)
    columns: Any = np.int64(0)
    rows: Any = np.int64(0)
    if across == 1:  # k by k, all but the last few columns
        columns, rows = width // LANES * LANES, depth
        for j in range(0, columns, LANES):
            if is_half:
                move_halves(x + size * j, down, depth, to + 4 * j, pitch)
            else:
                move_floats(x + size * j, down, depth, to + 4 * j, pitch)
    elif down == 1:  # square by square, all but the last few k
        columns, rows = width, depth // LANES * LANES
        for k in range(0, rows, LANES):
            for j in range(0, width, LANES):
                source, target = x + size * (k + j * across), to + 4 * (k * pitch + j)
                if is_half:
                    turn_halves(source, across, width - j, target, pitch)
                else:
                    turn_floats(source, across, width - j, target, pitch)
    if rows and columns < width:
        rest = x + size * columns * across
        _one_by_one(rest, is_half, steps, rows, width - columns, to + 4 * columns, pitch)
    if rows < depth:
        rest = x + size * rows * down
        _one_by_one(rest, is_half, steps, depth - rows, width, to + 4 * rows * pitch, pitch)


@compiled(is_part=True)
def lay_panel(
    x: int, is_half: int, steps: tuple[int, int], depth: int, width: int, to: int
) -> None:
    """A panel: up to PANEL columns at x over all k; see `_lay`."""
    _lay(x, is_half, steps, depth, width, to, PANEL)


@compiled(is_part=True)
def _tile(
    strip: int, panel: int, out: int, sizes: tuple[int, int, int], pitch: int, adds: int, room: int
) -> None:
    """A strip times a panel, for a result that may be less than a tile."""
    depth, rows, columns = sizes
    keeps: Any = np.int64(0)
    if rows == ROWS and columns == PANEL:
        multiply_tile(strip, panel, out, depth, pitch, adds)
        return
    multiply_tile(strip, panel, room, depth, PANEL, keeps)
    for r in range(rows):
        source, to = room + 4 * r * PANEL, out + 4 * r * pitch
        if adds:
            kernels.add_to(to, source, columns)
        else:
            kernels.move(to, source, columns)


@compiled(is_part=True)
def multiply(
    x: int,
    is_half: int,
    steps: tuple[int, int],
    panels: int,
    out: int,
    sizes: tuple[int, int, int],
    pitch: int,
    adds: int,
    begin: int,
    end: int,
    scratch: int,
) -> None:
    """The strips `begin` to `end` of out [m, n] = x [m, k] times panels of [k, n].

    Args:
        x: its address.
        is_half: whether x is fp16.
        steps: from one row of x to the next, and from one k to the next.
        panels: the address of the right side.
        out: the address of the result.
        sizes: m, n and k.
        pitch: from one row of the result to the next.
        adds: whether to add to what is there.
        begin: the first strip, of ROWS rows.
        end: behind the last one.
        scratch: SCRATCH_BYTES of this thread's own.
    """
    m, n, k = sizes
    down, across = steps
    size, room = 4 - 2 * is_half, scratch + STRIPS * _STRIP
    for first in range(begin, end, STRIPS):
        last = min(first + STRIPS, end)
        for at in range(0, k, DEPTH):
            depth = min(DEPTH, k - at)
            for t in range(first, last):
                source = x + size * (t * ROWS * down + at * across)
                rows, to = min(LANES, m - t * ROWS), scratch + (t - first) * _STRIP
                _lay(source, is_half, (across, down), depth, rows, to, LANES)
            adding: Any = np.int64(1) if at else adds
            for column in range(0, n, PANEL):
                panel = panels + 4 * (column * k + at * PANEL)
                for t in range(first, last):
                    part = depth, min(ROWS, m - t * ROWS), min(PANEL, n - column)
                    to = out + 4 * (t * ROWS * pitch + column)
                    strip = scratch + (t - first) * _STRIP
                    _tile(strip, panel, to, part, pitch, adding, room)


@compiled(is_part=True)
def panels_of(n: int) -> Any:
    """How many panels n columns are."""
    return (n + PANEL - 1) // PANEL


@compiled(is_part=True)
def strips_of(m: int) -> Any:
    """How many strips m rows are."""
    return (m + ROWS - 1) // ROWS
