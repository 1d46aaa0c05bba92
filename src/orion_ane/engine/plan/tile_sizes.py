"""The sizes of a wide product's tiles, which who plans it must know too.

How many rows and columns a tile has is as many as the registers hold.
"""

from __future__ import annotations

from orion_ane.engine import processor
from orion_ane.engine.plan.layout import DEPTH

LANES, ROWS = (16, 14) if "avx512f" in processor.flags() else (8, 6)
VECTORS = 2
PANEL = LANES * VECTORS
"""Columns of a tile, and of the panels that hold the right side."""
STRIP_BYTES = 4 * LANES * DEPTH
"""A strip is `ROWS` rows of the left side over a block of k, turned: LANES numbers for each k."""
TILE_BYTES = 4 * LANES * PANEL
STRIPS = 8  # that are multiplied by a panel while it is near
SCRATCH_BYTES = STRIPS * STRIP_BYTES + TILE_BYTES
