"""Budget: how many programs a process gets of a device, and how soon after a failed compile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from orion_ane.ane.targets import Target
from orion_ane.errors import BackendError, BudgetError

ROOM = ("ANE005", "ANE165")
"""Rows that a process has room for so many programs by; where none holds there is no end."""
PAUSE = "ANE166"


class Budget:
    """What is left of a device to this process; threads may share it.

    Args:
        target: holds the rows, and says what is counted.
        clock: seconds that only grow.
    """

    def __init__(self, target: Target, clock: Callable[[], float]) -> None:
        self._behaviour, self._clock = target.behaviour, clock
        self._is_bounded = any(code in target.limits for code in ROOM)
        self._is_paced = PAUSE in target.limits
        self._loaded: WeakSet[Any] = WeakSet()
        self._compiles, self._pending = 0, 0
        self._failed_at: float | None = None
        self._lock = threading.Lock()

    @contextmanager
    def compiling(self) -> Iterator[Callable[[object], None]]:
        """Room for one compile; what it gives is told by calling the value.

        Raises:
            BackendError: the last one failed a moment ago.
            BudgetError: there is no room.
        """
        self._want_pause()
        with self._room(counts=True) as take:
            try:
                yield take
            except BackendError:
                self._failed_at = self._clock()
                raise

    @contextmanager
    def loading(self) -> Iterator[Callable[[object], None]]:
        """Room for one load with a donor's code, which is no compile.

        Raises:
            BudgetError: there is no room.
        """
        with self._room(counts=self._behaviour.programs_are == "loaded") as take:
            yield take

    def unload(self, executable: object) -> None:
        """What is unloaded, once or again, takes no room."""
        with self._lock:
            self._loaded.discard(executable)

    @contextmanager
    def _room(self, *, counts: bool) -> Iterator[Callable[[object], None]]:
        with self._lock:
            if counts and self._is_bounded:
                self._want_room()
            self._pending += counts
        made: list[object] = []
        try:
            yield made.append
        finally:
            with self._lock:
                self._pending -= counts
                self._compiles += counts and bool(made)
                self._loaded.update(made)

    def _want_room(self) -> None:
        most, counted = self._behaviour.programs, self._behaviour.programs_are
        used = (len(self._loaded) if counted == "loaded" else self._compiles) + self._pending
        if used < most:
            return
        ways = "load by a donor, pass weights as inputs, or go on in a new process"
        hint = f"unload some, {ways}" if counted == "loaded" else ways
        word = {"loaded": "loaded programs", "compiles": "compiles"}[counted]
        what = f"this process has used its {most} {word}"
        raise BudgetError("compile", what, hint=hint)

    def _want_pause(self) -> None:
        if not self._is_paced or self._failed_at is None:
            return
        since, pause = self._clock() - self._failed_at, self._behaviour.compile_pause_s
        if since < pause:
            raise BackendError(
                "compile",
                "the compile before this failed a moment ago",
                got=f"{since:.1f} s",
                want=f"at least {pause:g} s between them",
                hint=f"wait {pause - since:.1f} s, or go on in a new process",
            )
