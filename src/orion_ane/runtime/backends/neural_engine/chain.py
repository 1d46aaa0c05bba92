"""A chain on the engine: a plan with surfaces of its own, which each new worker is told."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orion_ane.errors import BackendError
from orion_ane.mil.program import Program
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.backends.neural_engine.layout import Layout, Placed
from orion_ane.runtime.backends.neural_engine.plan import document_of
from orion_ane.runtime.backends.neural_engine.process import Process, Spool
from orion_ane.runtime.chain import Link
from orion_ane.runtime.surfaces import filled, taken
from orion_ane.types import Array

if TYPE_CHECKING:
    from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine

NOTHING: Mapping[str, float] = {}


@dataclass(eq=False)
class Plan:
    """A plan's number, and the worker that knows it."""

    number: int
    known_by: Process | None = None


class EngineChain:
    """Programs that run one after another in one message; see `Chain`.

    Its surfaces keep what was given in earlier runs, until a worker dies: the next one is given
    everything.
    """

    def __init__(
        self,
        device: NeuralEngine,
        plan: Plan,
        programs: Sequence[Program],
        links: Sequence[Link],
        takes: Collection[str],
    ) -> None:
        self._device, self._plan = device, plan
        self._layout = Layout(programs, links, takes)
        self._there: set[str] = set()  # what lies in the surfaces as it was given last
        self._done = 0  # the links whose results lie there
        self._end = weakref.finalize(self, device.drop, plan)
        self._end.atexit = False

    def run(
        self,
        loaded: Sequence[Executable],
        given: Mapping[str, Array],
        *,
        changed: Collection[str] | None = None,
        numbers: Mapping[str, float] | None = None,
        links: tuple[int, int] | None = None,
        takes: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """Values that come out; see `Chain`."""
        if not self._end.alive:
            raise BackendError("chain", "is closed", hint="make it again")
        layout, named = self._layout, numbers or NOTHING
        first, end = links or (0, len(layout.ends) - 1)
        of = {
            name: placed
            for name, (placed, made) in layout.taken.items()
            if first < made <= end and (takes is None or name in takes)
        }
        message = {
            "programs": self._device.numbers_of(loaded),
            "numbers": [named.get(name, 0) for name in layout.numbers],
            "reads": [[placed.surface, placed.start] for placed in of.values()],
        }
        return self._device.repeated(lambda: self._went(message, given, changed, (first, end), of))

    def _went(
        self,
        message: dict[str, Any],
        given: Mapping[str, Array],
        changed: Collection[str] | None,
        links: tuple[int, int],
        of: Mapping[str, Placed],
    ) -> dict[str, Array]:
        device, layout = self._device, self._layout
        process, spool = device.process, device.spool
        process.want_open()
        if self._plan.known_by is not process:
            self._tell(process, spool)
        first, end = links
        if self._done < first:
            first = 0
        self._there -= layout.given.keys() if changed is None else set(changed)
        due = [n for n, asked in layout.asked.items() if asked <= end and n not in self._there]
        writes, size = [], 0
        for name in due:
            for placed in layout.given[name]:
                array = filled(placed.port, given.get(name))
                spool.block[placed.start : placed.start + placed.size] = _bytes(array)
                writes.append([placed.surface, placed.start])
                size += placed.size
        there, self._there, self._done = self._there, set(), 0  # where it fails, who knows
        steps = [layout.ends[first], layout.ends[end]]
        plan, where = self._plan.number, f"a run that gives {_shown(of)}"
        process.ask("go", where=where, plan=plan, writes=writes, steps=steps, **message)
        self._there, self._done = there.union(due), end
        size += sum(placed.size for placed in of.values())
        device.bytes_copied += 2 * size
        return {name: _array(spool, placed) for name, placed in of.items()}

    def _tell(self, process: Process, spool: Spool) -> None:
        spool.make_room(self._layout.room)
        sizes = [port.type.nbytes for port in self._layout.ports]
        steps = document_of(self._layout.steps)
        process.ask("plan", plan=self._plan.number, surfaces=sizes, steps=steps)
        self._plan.known_by = process
        self._there, self._done = set(), 0

    def close(self) -> None:
        """Give it up; a second call does nothing."""
        if self._end.alive:
            self._end.detach()
            self._device.forget(self._plan)


def _shown(names: Collection[str]) -> str:
    """What comes out of a run, by which an error names it."""
    first = ", ".join(name.removeprefix("out ") for name in sorted(names)[:3]) or "nothing"
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"


def _array(spool: Spool, placed: Placed) -> Array:
    """What lies in the block at a surface's place, as a new array of the port's value."""
    port = placed.port
    found = np.frombuffer(
        spool.block[placed.start : placed.start + placed.size], port.type.dtype.numpy
    )
    surface = found.reshape(port.type.shape)
    value = taken(port, surface)
    return value.copy() if value is surface else value


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
