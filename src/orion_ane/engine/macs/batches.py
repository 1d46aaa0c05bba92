"""Thin products of many matrices in one call: each by the very steps of a product of its own."""

from __future__ import annotations

from functools import partial

import numpy as np

from orion_ane.engine import jit
from orion_ane.engine.macs import kernels, vectors
from orion_ane.engine.macs.kernels import Left, measure, mend, right_side, thin_rows
from orion_ane.engine.macs.vectors import DEPTH
from orion_ane.types import Array

compiled = partial(jit.compiled, sources=(vectors, kernels))


@compiled()
def thin_batch(w: Array, x: Array, y: Array, sticky: bool) -> None:
    """y [B,O,S] = w [B,O,K] x [B,S,K] transposed, all as bits of fp16; S is small."""
    outer, inner, columns = w.shape[1], w.shape[2], x.shape[1]
    reach = np.empty((outer, (inner + DEPTH - 1) // DEPTH), np.float32)
    bound, odd = np.empty((outer, 2), np.float32), np.empty(outer, np.bool_)
    todo = np.empty((outer, columns), np.bool_)
    for b in range(w.shape[0]):
        left = Left(w[b], reach, bound, odd)
        measure(left)
        longest = 0.0
        for o in range(outer):
            if not odd[o]:
                longest = max(longest, bound[o, 1])
        right = right_side(x[b], longest)
        if thin_rows(left, right, y[b], todo, sticky, 0, outer):
            mend(w[b], x[b], y[b], todo, sticky)
