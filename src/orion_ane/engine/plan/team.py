"""The threads of a run, which stay awake for a while, since the next run often comes soon.

To wake a thread takes longer than many a program does, and so does Python to hear of its end.
"""

from __future__ import annotations

import os
from functools import cache
from time import perf_counter

import numpy as np

from orion_ane.engine.compiling import compiling
from orion_ane.engine.plan import natives
from orion_ane.engine.plan.layout import AWAKE, SHARED
from orion_ane.engine.threads import Threads

STAYS_S = 3e-3
"""Longer than the host takes between two programs, or between two tokens."""
_TRIED = 10_000

_SHARED = np.zeros(SHARED, np.int64)
# Found once: what a run asks Python for is in no cache, since weights went through all of them.
_AT = int(_SHARED.ctypes.data)
_NUMBERS = _SHARED.data


def lead(threads: Threads, count: int, *given: int) -> None:
    """Do tasks on up to `count` threads.

    Args:
        threads: who may compute, and is running.
        count: how many should.
        given: the tasks' address, and how many there are; the addresses of the commands, the views,
            the steps and the bases; that of the threads' own memory, and bytes of it for each.
    """
    if _NUMBERS[AWAKE // 8] < count - 1:
        missing = natives.enlist(_AT, count - 1)
        if missing:
            stays = _pauses()
            threads.start(lambda: natives.follow(_AT, stays), missing)
    natives.lead(_AT, count, *given)


@cache
def _pauses() -> int:
    """How many pauses a thread stays for: one is 20 cycles or 140, by processor."""
    shared = np.zeros(SHARED, np.int64)
    times = []
    with compiling():  # once, and no part of a run either
        natives.follow(shared.ctypes.data, 0)  # here, so that no thread of the team compiles it
        for _ in range(3):
            start = perf_counter()
            natives.follow(shared.ctypes.data, _TRIED)
            times.append(perf_counter() - start)
    return int(STAYS_S / min(times) * _TRIED)


def _forget() -> None:
    _SHARED[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
