"""Which process of pytest-xdist runs which file, and when."""

from __future__ import annotations

from functools import cache
from typing import Any

from xdist.scheduler import LoadFileScheduling

LONG = (
    "tests/conformance/test_frozen_sample.py",
    "tests/bridge/test_lora_on_the_stand_in.py",
    "tests/unit/train/test_peers.py",
    "tests/unit/engine/test_kernels.py",
    "tests/bridge/test_steps.py",
    "tests/bridge/test_same_bits.py",
    "tests/unit/engine/test_kept_kernels.py",
    "tests/bridge/test_tokens.py",
    "tests/bridge/test_probe.py",
)
"""Of few tests that take long, which would come last, while the other processes wait."""


class Files(LoadFileScheduling):
    """As `--dist loadfile`, in time that does not grow with the tests that have ended.

    Those are forgotten, where theirs counts them all again at each report.
    """

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        name = self.registered_collections[node][item_index]
        file, work = self._split_scope(name), self.assigned_work[node]
        del work[file][name]
        if not work[file]:
            del work[file]
        self._reschedule(node)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        return sum(map(len, workload.values()))

    def _assign_work_unit(self, node: Any) -> None:
        waiting = (file for file in LONG if file in self.workqueue)
        file = next(waiting, None) or next(iter(self.workqueue))
        tests = self.assigned_work[node][file] = self.workqueue.pop(file)
        places = self._places(node)
        node.send_runtest_some([places[name] for name in tests])

    @cache  # noqa: B019 - one scheduler for a process
    def _places(self, node: Any) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.registered_collections[node])}
