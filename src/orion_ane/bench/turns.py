"""Our own works that need a process of their own, since its memory is what counts.

Spoken to as peers are: a line of JSON that says what it is, then rates for each line read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orion_ane.bench.harness import Rates

PEAK = "peak memory"
UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes that a system counts peak memory in."""


def serve(prepare: Callable[[Mapping[str, Any]], tuple[str, Callable[[], Rates]]]) -> None:
    """Do the work that the first argument names, once for each line."""
    what, once = prepare(json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps({"ready": what}) + "\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(dict(once())) + "\n")
        sys.stdout.flush()


def peak_gb() -> float:
    """The most memory that this process ever had, in GB."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux's ru_maxrss begins with the parent's, which is no use here
        (line,) = (t for t in status.read_text().splitlines() if t.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e9
    import resource  # not on Windows, where nobody asks

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e9
