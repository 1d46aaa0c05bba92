"""Who computes: the threads of a run, and the one run at a time that a process has."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import TypeVar

import numpy as np

from orion_ane.engine.compiling import seconds, waited
from orion_ane.errors import ConfigError

_RUNNING = threading.Lock()  # the threads that follow have one leader

Part = TypeVar("Part")


class _State:
    running: int | None = None  # the thread that has the run


_STATE = _State()


class Threads:
    """At most `count` threads (by default one a processor) for the products of a program.

    A product is cut by its shape alone and each part is summed by one thread, so the count does
    not show in a result.  numpy's BLAS has no part in it, whose own threads would.

    Raises:
        ConfigError: a count below one.
    """

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise ConfigError("threads", "no such number of threads", got=count, want="at least 1")
        self.count = count or processors()

    @property
    def turn(self) -> AbstractContextManager[object]:
        """The process's one run, for who holds it until one call of the engine is done."""
        # The lock itself: Ctrl-C between a function of ours that takes it and its block would leave
        # it taken.
        return _RUNNING

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the process's one run while a tape is followed, whose steps may ask for it."""
        with _RUNNING:
            _STATE.running = threading.get_ident()
            try:
                with np.errstate(all="ignore"):
                    yield
            finally:
                _STATE.running = None

    @property
    def are_running(self) -> bool:
        """Whether the run is this thread's, who may have a team then."""
        return _STATE.running == threading.get_ident()

    def each(self, task: Callable[[Part], None], parts: Iterable[Part]) -> None:
        """Run `task` on each part; numpy and our kernels let the others run meanwhile."""
        if self.count == 1 or not threading.main_thread().is_alive():  # the process is ending
            for part in parts:
                task(part)
            return

        def timed(part: Part) -> tuple[int, float]:
            before = seconds()
            task(part)
            return threading.get_ident(), seconds() - before

        futures = [_pool(self.count).submit(timed, part) for part in parts]
        spent: dict[int, float] = defaultdict(float)
        try:
            for future in futures:
                thread, compiling_s = future.result()
                spent[thread] += compiling_s
        finally:  # also after Ctrl-C: what runs writes to what the next run may use
            for future in futures:
                future.cancel()
            wait(futures)
        waited(max(spent.values(), default=0.0))

    def start(self, task: Callable[[], None], count: int) -> None:
        """Run `task` in so many other threads, which end by themselves.

        In none where the process is ending and starts no threads: nobody waits for them.
        """
        for _ in range(count):
            with suppress(RuntimeError):
                _pool(self.count, "team").submit(task)


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool(count: int, name: str = "product") -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=f"orion-{name}")


def _forget_threads() -> None:
    """In a forked process: the parent's threads are not there, and its lock may be held by one."""
    global _RUNNING  # noqa: PLW0603 - the process's one lock, in a new process
    _RUNNING = threading.Lock()
    _pool.cache_clear()
    _STATE.running = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
