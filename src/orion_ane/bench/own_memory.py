"""How much memory a model takes, in a process that does nothing but load it and decode.

The whole process counts, as the system does: Python, numpy and this package with it, and pages of
files, which the system may drop and other processes share.  Kernels were kept before, as they are
from a machine's first run on; where they were not, or cannot be, numba and LLVM count too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np

from orion_ane.bench.harness import Rates
from orion_ane.bench.turns import peak_gb, serve
from orion_ane.generate.model import load

FREE = "weights over peak memory"
LOADED = "weights over peak memory less that with the package imported"
OWN = "weights over peak anonymous memory"
STATUS = Path("/proc/self/status")


class Watch:
    """The most anonymous memory, in GB, looked up all the time; 0 where that cannot be told."""

    def __init__(self) -> None:
        self.peak = 0.0
        if STATUS.is_file():
            Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            (line,) = (t for t in STATUS.read_text().splitlines() if t.startswith("RssAnon:"))
            self.peak = max(self.peak, int(line.split()[1]) * 1024 / 1e9)
            sleep(0.005)


def prepare(work: Mapping[str, Any]) -> tuple[str, Callable[[], Rates]]:
    """A model from a file; its peak beside the bytes of its weights."""
    before = peak_gb()
    anonymous = Watch()
    model = load(work["path"], device="cpu", weights=work["stored"], threads=work["threads"])
    size = work["bytes"] / 1e9

    def once() -> Rates:
        session = model.session(expect=len(work["ids"]) + work["new"])
        logits = session.append(work["ids"])
        for _ in range(work["new"]):
            logits = session.append([int(np.argmax(logits))])
        peak = peak_gb()
        found = {FREE: size / peak, LOADED: size / (peak - before)}
        return found | ({OWN: size / anonymous.peak} if anonymous.peak else {})

    return "orion, loaded from a file", once


if __name__ == "__main__":
    serve(prepare)
