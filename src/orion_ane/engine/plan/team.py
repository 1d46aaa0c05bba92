"""The threads of a run, which stay awake for a while, since the next run often comes soon.

To wake a thread takes longer than many a program does, and so does Python to hear of its end.
"""

from __future__ import annotations

import os

import numpy as np

from orion_ane.engine.plan import run
from orion_ane.engine.threads import Threads

STAYS = 40_000
"""Pauses, a millisecond or two: longer than the host takes between two programs, or two tokens."""

_SHARED = np.zeros(run.SHARED, np.int64)


def lead(
    threads: Threads,
    count: int,
    tasks: tuple[int, int],
    tables: tuple[int, int, int, int],
    scratch: tuple[int, int],
) -> None:
    """Do tasks on up to `count` threads.

    Args:
        threads: who may compute, and is running.
        count: how many should.
        tasks: their address, and how many there are.
        tables: the addresses of the commands, the views, the steps and the bases.
        scratch: the address of the threads' own memory, and bytes of it for each.
    """
    shared = _SHARED.ctypes.data
    if count > 1:
        threads.start(lambda: run.follow(shared, STAYS), run.enlist(shared, count - 1))
    run.lead(shared, count, *tasks, *tables, *scratch)


def _forget() -> None:
    _SHARED[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
