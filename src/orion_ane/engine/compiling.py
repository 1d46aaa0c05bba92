"""How long kernels take to be compiled or read from the disk, apart from the runs that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class _State:
    depth = 0
    spent: tuple[float, float | None] = 0.0, None  # seconds, and since when there are more


_STATE = _State()


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time of the block, which others may be inside; numba's compiler lock is held."""
    _STATE.depth += 1
    if _STATE.depth == 1:
        _STATE.spent = _STATE.spent[0], time.perf_counter()
    try:
        yield
    finally:
        _STATE.depth -= 1
        before, started = _STATE.spent
        if _STATE.depth == 0 and started is not None:
            _STATE.spent = before + time.perf_counter() - started, None


def seconds() -> float:
    """What this process has spent so far."""
    return time.perf_counter() - clock()


def clock() -> float:
    """Seconds that only grow, and stand still while kernels are compiled."""
    before, started = _STATE.spent
    return (time.perf_counter() if started is None else started) - before
