"""Products by BLAS in which neither a row's nor a column's place shows.

BLAS has other loops for small products, and for what is left of a side by its blocks, and they
sum in another order: so the same column gave other last bits at another place, or in a batch of
another position.  Sides that are multiples of EDGE, of products above LEAST, have none of that.
"""

from __future__ import annotations

import numpy as np

from orion_ane.types import Array

EDGE = 16
LEAST = 1_050_000  # multiply-adds; OpenBLAS takes up to a million for a small product
SIDE = 112  # of a small product, once it is padded: 112³ is above LEAST


def multiply(x: Array, y: Array, *, rows: bool = True, columns: bool = True) -> Array:
    """x [M,K] y [K,N] in fp32.

    Args:
        x: any layout.
        y: likewise.
        rows: whether a row's place must not show.
        columns: likewise.
    """
    (m, k), n = x.shape, y.shape[1]
    if m == 1 or n == 1:  # nothing has another place
        return np.asarray(np.matmul(_ready(x), _ready(y)))
    m_, k_, n_ = padded(m, k, n, rows=rows, columns=columns)
    x, y = filled(x, m_, k_), filled(y, k_, n_)
    return np.asarray(np.matmul(x, y))[:m, :n]


def padded(m: int, k: int, n: int, *, rows: bool = True, columns: bool = True) -> tuple[int, ...]:
    """The sizes that such a product is computed in."""
    m, n = (edged(m) if rows else m), (edged(n) if columns else n)
    if m * k * n <= LEAST:
        n = max(n, SIDE)
    if m * k * n <= LEAST:
        m = max(m, SIDE)
    if m * k * n <= LEAST:
        k = max(k, SIDE)
    return m, k, n


def each(x: Array, y: Array, out: Array) -> None:
    """Fill out [...,M,N] with x [...,M,K] y [...,K,N], whose other axes broadcast."""
    batch = out.shape[:-2]
    x, y = (np.broadcast_to(side, (*batch, *side.shape[-2:])) for side in (x, y))
    for at in np.ndindex(batch):
        out[at] = multiply(x[at], y[at])


def edged(size: int) -> int:
    """The next multiple of EDGE."""
    return -(-size // EDGE) * EDGE


def filled(x: Array, rows: int, columns: int) -> Array:
    """A matrix among zeros, where it is not that large."""
    if x.shape == (rows, columns):
        return _ready(x)
    wide = np.zeros((rows, columns), x.dtype)
    wide[: x.shape[0], : x.shape[1]] = x
    return wide


def _ready(x: Array) -> Array:
    """A matrix that BLAS takes: one of its axes is contiguous."""
    return x if x.itemsize in x.strides else np.ascontiguousarray(x)
