"""Loaded programs, kept for the next who asks, the longest unused closed first."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from orion_ane.errors import ConfigError
from orion_ane.mil.program import Program
from orion_ane.runtime.backend import Backend, Executable

DEFAULT_CAPACITY = 100
"""A process holds about 119 programs on the device (paper, limit 5); some are not the cache's."""


@dataclass(frozen=True)
class CacheCounts:
    """How often a program was compiled, found, and closed to make room."""

    compiles: int = 0
    hits: int = 0
    evictions: int = 0


class ProgramCache:
    """Executables of one backend by code, weights and port names; at most `capacity` are loaded.

    The executables are the cache's: ask for one before each use rather than keep it, since it is
    closed when `capacity` others were asked for after it.  Threads may share a cache; one that
    asks while another's program compiles waits.

    Raises:
        ConfigError: `capacity` is not a whole number from 1 up.
    """

    def __init__(self, backend: Backend, *, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1:
            raise ConfigError("cache", "no room for a program", got=capacity, want="at least 1")
        self.backend, self.capacity = backend, capacity
        self._counts: Counter[str] = Counter()
        self._loaded: OrderedDict[Executable, Hashable] = OrderedDict()  # the longest unused first
        self._by_code: dict[Hashable, list[Executable]] = {}
        self._codes: WeakKeyDictionary[Program, str] = WeakKeyDictionary()
        self._latest: dict[int, Executable] = {}  # by the number of what was asked for
        self._lock = Lock()

    def get(self, program: Program) -> Executable:
        """The program loaded: the one that is there already, or a new one.

        Other weights are another program here; to exchange them without compiling is the caller's
        choice, by `Executable.reload`.

        Raises:
            MilError: the backend cannot read the program.
            BudgetError: it has no room for another, though this cache has.
        """
        with self._lock:
            latest = self._latest.get(id(program))
            if latest is not None and latest.program is program:
                self._loaded.move_to_end(latest)
                self._counts["hits"] += 1
                return latest
            code = self._codes.get(program)
            if code is None:  # kept, since a hash of some hundred ports takes a while each time
                code = f"{program.code_key} {program.inputs} {program.outputs}"
                self._codes[program] = code
            for found in self._by_code.get(code, ()):
                if _same_weights(found.program, program):
                    self._loaded.move_to_end(found)
                    self._counts["hits"] += 1
                    return found
            while len(self._loaded) >= self.capacity:  # first, so that the bound holds throughout
                self._unload(next(iter(self._loaded)))
                self._counts["evictions"] += 1
            made = self.backend.compile(program)
            self._loaded[made] = code
            self._by_code.setdefault(code, []).append(made)
            self._latest[id(program)] = made
            self._counts["compiles"] += 1
            return made

    def _unload(self, executable: Executable) -> None:
        self._by_code[self._loaded.pop(executable)].remove(executable)
        self._latest = {at: one for at, one in self._latest.items() if one is not executable}
        executable.close()

    @property
    def counts(self) -> CacheCounts:
        """What has happened so far."""
        return CacheCounts(**self._counts)

    def __len__(self) -> int:
        """How many programs are loaded."""
        return len(self._loaded)

    def close(self) -> None:
        """Unload every program; the cache may be used again."""
        with self._lock:
            while self._loaded:
                self._unload(next(reversed(self._loaded)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _same_weights(a: Program, b: Program) -> bool:
    """Whether two programs read the same bytes; files that are one buffer need no look at them."""
    if a.weights.keys() != b.weights.keys():
        return False
    is_shared = all(a.weights[path] is b.weights[path] for path in a.weights)
    return is_shared or a.weights_key == b.weights_key
