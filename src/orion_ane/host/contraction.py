"""What the host multiplies and sums itself: gradients of weight matrices and of lookup tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from orion_ane.types import Array


def contraction(x: Array, dy: Array, *, dtype: DTypeLike = np.float32) -> Array:
    """dW = dy xᵀ, summed over lanes.

    Args:
        x: what the product read, [1,I,1,S], in any float type.
        dy: the cotangent of what it gave, [1,O,1,S].
        dtype: in which values are multiplied and summed, and of the result.

    Returns:
        [O, I].
    """
    columns = _matrix(x, dtype)  # [I, S]
    rows = _matrix(dy, dtype)  # [O, S]
    return np.matmul(rows, columns.T)


def _matrix(packed: Array, dtype: DTypeLike) -> Array:
    return packed.reshape(packed.shape[1], -1).astype(dtype, copy=False)


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
