"""How fast this machine reads memory: the best of three loops over more than any cache holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from orion_ane.bench.harness import Rates
from orion_ane.engine.plan.memory import block
from orion_ane.engine.threads import Threads, processors
from orion_ane.ir import Graph
from orion_ane.ops import Weight, cast, conv1x1, input_, weight
from orion_ane.types import DType, TensorType

BYTES = 1 << 30
COLUMNS = 4096
BEST = "read bandwidth"
UNITS = {BEST: "GB/s", "read: sum": "GB/s", "read: triad": "GB/s", "read: fp16 rows": "GB/s"}


class Bandwidth:
    """A work that reads a gigabyte three times over, in large pages where the system has them."""

    def __init__(self, *, threads: int | None = None, size: int = BYTES) -> None:
        self._threads = Threads(threads or processors())
        self._bytes = np.frombuffer(block(size), np.uint8)
        self._bytes.fill(0)  # each page a page of its own: unwritten ones are one and the same
        self._rows: Callable[[], None] | None = None

    def __call__(self) -> Rates:
        """GB/s of each loop, and of the best."""
        from orion_ane.bench import loops

        single = self._bytes.view(np.float32)
        half = single.size // 2
        if self._rows is None:
            self._rows = self._product()
        loops.use(self._threads.count)
        with self._threads.turn:
            found = {
                "read: sum": self._rate(loops.total, single),
                "read: triad": self._rate(
                    loops.triad, single[:half], single[half:], np.float32(0.5)
                ),
            }
        found["read: fp16 rows"] = self._rate(self._rows)  # it holds the process's one run itself
        return {BEST: max(found.values()), **found}

    def _product(self) -> Callable[[], None]:
        """The bytes as an fp16 matrix times a column, as decoding runs it."""
        from orion_ane.engine.plan.plan import plan

        single, half = DType.FP32, DType.FP16
        x = input_("x", TensorType(single, (1, COLUMNS, 1, 1)))
        rows = self._bytes.view(np.float16).reshape(-1, COLUMNS, 1, 1)
        w = weight("w", TensorType(half, rows.shape))
        graph = Graph({"x": x}, {"y": conv1x1(x, cast(w, single))})
        assert isinstance(w.op, Weight)
        made = plan(graph, {w.op: rows}, rounds=False, threads=self._threads)
        ports = {"x": np.ones(x.type.shape, np.float32)}
        return made.bind(ports, {"y": np.empty((1, len(rows), 1, 1), np.float32)}).run

    def _rate(self, loop: Any, *args: Any) -> float:
        before = time.perf_counter()
        loop(*args)
        return self._bytes.size / (time.perf_counter() - before) / 1e9
