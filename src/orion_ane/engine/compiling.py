"""How long kernels take to be compiled or read from the disk, apart from the runs that wait.

Each thread has a count of its own: what one compiles is nothing to a run that does not wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

_log = logging.getLogger("orion_ane")

Step = TypeVar("Step")


class _State(threading.local):
    depth = 0
    started = 0.0
    spent = 0.0


_STATE = _State()


@cache
def tell() -> None:
    """Say once in a process what takes so long."""
    _log.warning(
        "compiling loops that are not kept yet, once for this machine: up to some 10 seconds"
    )


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time of the block as this thread's; blocks inside it count once."""
    _STATE.depth += 1
    if _STATE.depth == 1:
        _STATE.started = time.perf_counter()
    try:
        yield
    finally:
        _STATE.depth -= 1
        if _STATE.depth == 0:
            _STATE.spent += time.perf_counter() - _STATE.started


def waited(spent: float) -> None:
    """Count seconds that this thread waited while another compiled for it."""
    if _STATE.depth == 0:  # else the block counts them
        _STATE.spent += spent


def seconds() -> float:
    """What this thread has spent so far."""
    return time.perf_counter() - clock()


def clock() -> float:
    """Seconds that only grow, and stand still while this thread waits for kernels.

    Two readings compare in one thread alone.
    """
    return (_STATE.started if _STATE.depth else time.perf_counter()) - _STATE.spent


def counted(steps: Iterator[Step]) -> Iterator[tuple[Step, float]]:
    """Steps with what each spent, whichever thread asks for it."""
    before = seconds()
    for step in steps:
        yield step, seconds() - before
        before = seconds()
