"""What the host sums itself: gradients of lookup tables."""

from __future__ import annotations

import numpy as np

from orion_ane.types import Array


def add_looked_up(table: Array, ids: Array, dy: Array) -> None:
    """Add the gradient of rows that were looked up to that of their table, in place.

    Args:
        table: [V, C], in fp32.
        ids: [S]; an id that comes twice adds twice.
        dy: the cotangents of the rows, [S, C].
    """
    order = np.argsort(ids, kind="stable")  # rows of one id side by side, in the order they came
    rows = ids[order]
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]][: len(rows)])
    if len(starts):
        table[rows[starts]] += np.add.reduceat(dy[order].astype(np.float32, copy=False), starts)
