"""The loops that read memory, in numba: importing this module imports it, so a command does not."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from orion_ane.engine.jit import compiled
from orion_ane.types import Array

_SUMS = frozenset({"reassoc", "contract", "nsz"})  # what lets a sum be vectorised


@compiled(parallel=True, fastmath=_SUMS)
def total(x: Array) -> Any:
    """The sum of x."""
    found = np.float32(0)
    for i in numba.prange(x.shape[0]):
        found += x[i]
    return found


@compiled(parallel=True, fastmath=_SUMS)
def triad(x: Array, y: Array, a: Any) -> Any:
    """The sum of x + a y."""
    found = np.float32(0)
    for i in numba.prange(x.shape[0]):
        found += x[i] + a * y[i]
    return found
