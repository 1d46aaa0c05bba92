"""How fast this machine reads memory: the best of three loops over more than any cache holds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from orion_ane.bench.harness import Rates
from orion_ane.engine.plan.memory import block
from orion_ane.engine.threads import Threads, processors

BYTES = 1 << 30
COLUMNS = 4096
BEST = "read bandwidth"
UNITS = {BEST: "GB/s", "read: sum": "GB/s", "read: triad": "GB/s", "read: fp16 rows": "GB/s"}


class Bandwidth:
    """A work that reads a gigabyte three times over, in large pages where the system has them."""

    def __init__(self, *, threads: int | None = None, size: int = BYTES) -> None:
        self._threads = Threads(threads or processors())
        self._threads.use_kernels = True
        self._bytes = np.frombuffer(block(size), np.uint8)
        self._bytes.fill(0)  # each page a page of its own: unwritten ones are one and the same
        self._x = np.ones(COLUMNS, np.float32)
        self._y = np.empty(size // 2 // COLUMNS, np.float32)

    def __call__(self) -> Rates:
        """GB/s of each loop, and of the best."""
        from orion_ane.bench import loops
        from orion_ane.engine import kernels

        single = self._bytes.view(np.float32)
        half = single.size // 2
        rows = self._bytes.view(np.uint16).reshape(-1, COLUMNS)
        with self._threads.running():
            found = {
                "read: sum": self._rate(loops.total, single),
                "read: triad": self._rate(
                    loops.triad, single[:half], single[half:], np.float32(0.5)
                ),
                "read: fp16 rows": self._rate(kernels.rows_by_vector, rows, self._x, self._y),
            }
        return {BEST: max(found.values()), **found}

    def _rate(self, loop: Any, *args: Any) -> float:
        before = time.perf_counter()
        loop(*args)
        return self._bytes.size / (time.perf_counter() - before) / 1e9
