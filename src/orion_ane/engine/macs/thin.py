"""Thin products by the rule, dealt out among the threads that stay awake between programs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]  # it does, untyped

from orion_ane.engine import lanes
from orion_ane.engine.jit import Native, compiled, native
from orion_ane.engine.macs import kernels, vectors
from orion_ane.engine.plan import code, layout, team
from orion_ane.engine.plan.code import (
    bytes_at,
    doubles_at,
    fetch_add,
    floats_at,
    halves_at,
    longs_at,
)
from orion_ane.engine.plan.layout import COMMAND, COMMAND_COLUMNS, At
from orion_ane.engine.plan.tasks import parts
from orion_ane.engine.threads import Threads
from orion_ane.types import Array

CHUNKS = 64  # of rows, which are dealt out
WORTH_DEALING = 1 << 16  # products that take longer than it takes to meet

SOURCES = (lanes, vectors, kernels, code, layout)
_GIVEN = int(At.VIEW)


@compiled(is_part=True)
def _rows(given: Any, y: Array, begin: int, end: int) -> None:
    """Chunks of rows of y.  Given: sizes, whether it is sticky, and addresses; see `thin`."""
    outer, inner, columns, padded, doubles = given[0], given[1], given[2], given[3], given[4]
    w, bound = carray(halves_at(given[6]), (outer, inner)), carray(floats_at(given[7]), (outer, 2))
    single = carray(floats_at(given[8]), (2, columns, padded))
    double = carray(doubles_at(given[9]), (2, doubles, padded))
    peak, odd = carray(doubles_at(given[10]), columns), carray(bytes_at(given[11]), columns)
    todo = carray(bytes_at(given[12]), (outer, columns))
    left, right = (w, bound, bound, bound), (single, double, peak, odd)
    first, last = begin * outer // CHUNKS, end * outer // CHUNKS
    left_over = kernels.thin_rows(left, right, y, todo, given[5], first, last)
    fetch_add(given[13], left_over)


@native(COMMAND, sources=SOURCES)
def rows_of_halves(
    command: int, _views: int, _steps: int, _bases: int, _memory: int, begin: int, end: int
) -> None:
    """Chunks of rows of fp16 bits."""
    given = longs_at(longs_at(command)[_GIVEN])
    _rows(given, carray(halves_at(given[14]), (given[0], given[2])), begin, end)


@native(COMMAND, sources=SOURCES)
def rows_of_sums(
    command: int, _views: int, _steps: int, _bases: int, _memory: int, begin: int, end: int
) -> None:
    """Chunks of rows of fp64 sums."""
    given = longs_at(longs_at(command)[_GIVEN])
    _rows(given, carray(doubles_at(given[14]), (given[0], given[2])), begin, end)


def thin(
    left: kernels.Left,
    longest: float,
    x: Array,
    y: Array,
    todo: Array,
    *,
    sticky: bool,
    threads: Threads | None,
) -> int:
    """y [O,S] = w xᵀ by the rule.

    Args:
        left: w.
        longest: the largest of left.bound[:, 1] that is finite.
        x: bits, [S,K].
        y: of uint16: fp16 bits; of fp64: the sums.
        todo: [O,S] of bool, becomes what bounds cannot clear, and `kernels.mend` must.
        sticky: whether a sum that passed the ceiling stays infinite.
        threads: who computes, if it is their run.

    Returns:
        How much is left to do.
    """
    single, double, peak, odd = kernels.right_side(x, longest)
    (outer, inner), columns = left.bits.shape, len(x)
    left_over = np.zeros(1, np.int64)
    places = (left.bits, left.bound, single, double, peak, odd, todo, left_over, y)
    addresses = (array.ctypes.data for array in places)
    sizes = (outer, inner, columns, single.shape[2], double.shape[1], sticky)
    given = np.array([*sizes, *addresses], np.int64)
    command = np.zeros(COMMAND_COLUMNS, np.int64)
    kernel: Native = rows_of_sums if y.dtype == np.float64 else rows_of_halves
    command[At.SPAN], command[At.CALL], command[_GIVEN] = 1, kernel.address, given.ctypes.data
    cost = outer * inner * columns
    if threads is None or threads.count == 1 or cost < WORTH_DEALING or not threads.are_running:
        kernel(command.ctypes.data, 0, 0, 0, 0, 0, CHUNKS)
    else:
        tasks = _tasks(cost, threads.count)
        at = tasks.ctypes.data, len(tasks), command.ctypes.data
        team.lead(threads, threads.count, *at, 0, 0, 0, 0, 0)
    return int(left_over[0])


@lru_cache(maxsize=256)
def _tasks(cost: int, count: int) -> Array:
    """The rows of `Task`: the chunks in parts."""
    return np.array([(0, 1, begin, end, 0) for begin, end in parts(CHUNKS, cost, count)], np.int64)
