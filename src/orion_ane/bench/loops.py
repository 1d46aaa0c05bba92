"""The loops that read memory, in numba: importing this module imports it, so a command does not."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, cast

import numba
import numpy as np
from numba import config

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


def use(count: int) -> None:
    """Have this thread's loops computed by at most `count` threads."""
    _launch()
    most: int = cast("Any", config).NUMBA_NUM_THREADS  # set when numba is imported
    numba.set_num_threads(min(count, most))


@cache
def _launch() -> None:
    """Start numba's threads so that they soon sleep when there is nothing to do.

    libgomp's would spin for milliseconds, and on a busy machine hold up the very thread that they
    wait for.  It reads the environment when it is loaded, here, and never again.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ)
    if not chosen:
        os.environ["GOMP_SPINCOUNT"] = "1000"  # some 50 µs: from one loop to the next
    numba.get_num_threads()  # loads the threading layer
    if not chosen:
        del os.environ["GOMP_SPINCOUNT"]
