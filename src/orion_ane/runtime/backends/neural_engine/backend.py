"""Device `ane`: programs on the Neural Engine, through a worker that may die and is replaced."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orion_ane.ane.check import want_kept
from orion_ane.ane.targets import Target
from orion_ane.ane.targets import target as find_target
from orion_ane.errors import BackendError, MilError
from orion_ane.mil.parse import parse_graph
from orion_ane.mil.program import Buffer, Port, Program
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.backends.neural_engine.libraries import libraries
from orion_ane.runtime.backends.neural_engine.plan import Place, Read, Run, Step, Write, document_of
from orion_ane.runtime.backends.neural_engine.process import Process, Spool, WorkerLostError
from orion_ane.runtime.budget import Budget
from orion_ane.runtime.portable import check_layout, check_ports, weights_of
from orion_ane.runtime.surfaces import fed, taken
from orion_ane.types import Array

log = logging.getLogger(__name__)

COMPILES = 100
"""After so many compiles a worker is replaced: processes were refused more from 105 on."""
ALIGNED = 64


@dataclass(eq=False)
class _Entry:
    """What is to be loaded, so that a new worker can be brought to it.

    Attributes:
        program: as it was compiled, or loaded by a donor, or reloaded last.
        number: by which the worker knows it.
        steps: of its plan, which write its inputs, run it and read its outputs.
        spans: where each port's bytes begin in the shared block, and how many they are.
    """

    program: Program
    number: int
    steps: tuple[Step, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The size of the block that it needs."""
        return max((start + size for start, size in self.spans), default=0)


class LoadedProgram:
    """A program that is loaded in the worker."""

    def __init__(self, device: NeuralEngine, entry: _Entry) -> None:
        self.device, self._entry = device, entry
        self._is_open = True
        # Nobody holds it any more: it is unloaded when the device is asked for something next.
        self._end = weakref.finalize(self, device.drop, entry)
        self._end.atexit = False

    @property
    def program(self) -> Program:
        """What was loaded, with the weights of the last reload."""
        return self._entry.program

    @property
    def is_open(self) -> bool:
        """Whether it can run."""
        return self._is_open

    @property
    def number(self) -> int:
        """Its number in plans."""
        return self._entry.number

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by port name, as new arrays; see `Executable`."""
        self._want_open()
        program = self.program
        surfaces = list(fed(program.inputs, inputs).values())
        found = self.device.evaluated(self._entry, surfaces)
        return {port.name: taken(port, a) for port, a in zip(program.outputs, found, strict=True)}

    def reload(self, weights: Mapping[str, Buffer], *, purge: bool = False) -> None:
        """Exchange the blob files; see `Executable`.

        Args:
            weights: by their paths.
            purge: let the system forget what it compiled, in between.
        """
        self._want_open()
        check_layout(self.program.weights, weights)
        renewed = replace(self.program, weights=weights, digests={})
        try:
            weights_of(parse_graph(renewed.text), renewed.weights)
        except MilError as error:
            raise BackendError("reload", f"the files do not fit the text: {error}") from error
        self.device.reload(self._entry, renewed, purge=purge)

    def close(self) -> None:
        """Unload; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._end.detach()
            self.device.budget_unload(self)
            self.device.close_program(self._entry)

    def _want_open(self) -> None:
        if not self._is_open:
            raise BackendError("program", "is closed", hint="compile it again")


class LoadedPlan:
    """A plan that the worker keeps: one message a run, whatever it does.

    Its programs have to stay loaded; a new worker gets it too.
    """

    def __init__(self, device: NeuralEngine, number: int, steps: Sequence[Step], room: int) -> None:
        self.number, self.steps, self.room = number, tuple(steps), room
        self._device = device

    def run(self, given: Mapping[int, Array]) -> list[bytes]:
        """What its `Read` steps take out, in their order.

        Args:
            given: arrays by their place in the shared block, where `Write` steps look for them.

        Raises:
            BackendError: a program is not loaded any more, or the device failed.
        """
        return self._device.done(self, given)


class NeuralEngine:
    """The Neural Engine of this machine.

    Args:
        target: the limits that programs have to keep, and the device's other answers: a name, a
            probe's file, or a target; None checks nothing and leaves it to the device.
        timeout_s: how long an answer of the device may take.
        compiles_each: after how many compiles a worker is replaced.
        clock: seconds that only grow, by which failed compiles are paced.

    Attributes:
        stand_in: the folder of the libraries, where they are not Apple's: then nothing was run on
            a Neural Engine.

    Raises:
        BackendError: there is no Neural Engine here, or it is not what the bridge was written for.
        ConfigError: no such target.
    """

    name: str = "ane"

    def __init__(
        self,
        *,
        target: str | Path | Target | None = "strict",
        timeout_s: float = 60.0,
        compiles_each: int = COMPILES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stand_in = libraries().stand_in
        self.target = find_target(target) if isinstance(target, str | Path) else target
        self._timeout_s, self._compiles_each = timeout_s, compiles_each
        self._budget = None if self.target is None else Budget(self.target, clock)
        self._lock = threading.RLock()
        self._entries: dict[int, _Entry] = {}
        self._plans: list[LoadedPlan] = []
        self._dropped: deque[_Entry] = deque()
        self._count = self._compiles = self._loads = self._used = 0
        self.respawns = self.bytes_copied = 0
        self._start()

    # The worker

    def _start(self) -> None:
        self._process, self._spool = self._begun()
        self._used = 0

    def _begun(self) -> tuple[Process, Spool]:
        process = Process(timeout_s=self._timeout_s)
        return process, Spool(process)

    def _respawn(self, why: object) -> None:
        """A new worker with what the old one had loaded, each program from its own weights."""
        log.warning("device ane: %s; a new worker loads %d programs", str(why), len(self._entries))
        self.respawns += 1
        self._process.close()
        self._start()
        for entry in self._entries.values():
            self._used = self._sent("compile", entry)["compiles"]
        for plan in self._plans:
            self._tell(plan)

    def _tell(self, plan: LoadedPlan) -> None:
        self._spool.make_room(plan.room)
        self._process.ask("plan", plan=plan.number, steps=document_of(plan.steps))

    def _sent(self, op: str, entry: _Entry, **more: Any) -> dict[str, Any]:
        """The answer to a program that the worker is to load."""
        program = entry.program
        self._spool.make_room(entry.end)
        answer = self._process.ask(
            op,
            program.text.encode(),
            program=entry.number,
            files=self._spool.blobs(program),
            inputs=[port.type.nbytes for port in program.inputs],
            outputs=[port.type.nbytes for port in program.outputs],
            **more,
        )
        self._process.ask("plan", plan=entry.number, steps=document_of(entry.steps))
        return answer

    # A backend

    @property
    def compiles(self) -> int:
        """How many programs were compiled so far."""
        return self._compiles

    @property
    def loads(self) -> int:
        """How many were loaded with a donor's code."""
        return self._loads

    @property
    def round_trips(self) -> int:
        """How many messages this worker has answered."""
        return self._process.round_trips

    @property
    def worker(self) -> int:
        """The number of the worker's process."""
        return self._process.pid

    def compile(self, program: Program) -> Executable:
        """Compile and load a program; see `Backend`."""
        _want_readable(program)
        if self.target is not None:
            want_kept(program, self.target)
        with self._lock, self._compiling() as take:
            self._clear()
            if self._used >= self._compiles_each > len(self._entries):  # else it would not help
                self._respawn(f"the worker has compiled {self._used} programs")
            entry = self._entry(program)
            self._used = self._loaded("compile", entry)["compiles"]
            self._compiles += 1
            made = LoadedProgram(self, entry)
            take(made)
        return made

    def load(self, program: Program, *, donor: Executable) -> Executable:
        """Load a program by a donor's plan; see `Backend`."""
        if not isinstance(donor, LoadedProgram) or donor.device is not self:
            raise BackendError("donor", "is not loaded on this device", got=type(donor).__name__)
        if not donor.is_open:
            raise BackendError("donor", "is closed", hint="keep it loaded, or compile the program")
        if donor.program.code_key != program.code_key:
            hint = "compile it: only weights may differ"
            raise BackendError("donor", "has another text than the program", hint=hint)
        _want_readable(program)
        with self._lock, self._loading() as take:
            self._clear()
            entry = self._entry(program)
            self._loaded("load", entry, donor=donor.number)
            self._loads += 1
            made = LoadedProgram(self, entry)
            take(made)
        return made

    def _loaded(self, op: str, entry: _Entry, **more: Any) -> dict[str, Any]:
        """Load a program, and note that it is.

        Raises:
            BackendError: the device refuses, or the worker died of it.
        """
        try:
            answer = self._sent(op, entry, **more)
        except WorkerLostError as lost:
            self._respawn(lost)
            raise
        except BackendError:
            if self._process.is_open:
                self._spool.let_go(entry.program)
            raise
        self._entries[entry.number] = entry
        return answer

    @contextmanager
    def _compiling(self) -> Iterator[Callable[[object], None]]:
        if self._budget is None:
            yield _nothing
            return
        with self._budget.compiling() as take:
            yield take

    @contextmanager
    def _loading(self) -> Iterator[Callable[[object], None]]:
        if self._budget is None:
            yield _nothing
            return
        with self._budget.loading() as take:
            yield take

    def budget_unload(self, made: LoadedProgram) -> None:
        """Note that a program takes no room."""
        if self._budget is not None:
            self._budget.unload(made)

    def _entry(self, program: Program) -> _Entry:
        """A program with a number, its place in the block, and its plan."""
        self._count += 1
        spans, end = [], 0
        for port in (*program.inputs, *program.outputs):
            spans.append((end, port.type.nbytes))
            end += -(-port.type.nbytes // ALIGNED) * ALIGNED
        inputs = spans[: len(program.inputs)]
        writes = [Write(Place(self._count, True, i), *span) for i, span in enumerate(inputs)]
        outputs = spans[len(program.inputs) :]
        reads = [Read(Place(self._count, False, i), *span) for i, span in enumerate(outputs)]
        steps: tuple[Step, ...] = (*writes, Run(self._count), *reads)
        return _Entry(program, self._count, steps, tuple(spans))

    # What a loaded program asks

    def evaluated(self, entry: _Entry, surfaces: Sequence[Array]) -> list[Array]:
        """The outputs' surfaces of those of the inputs."""
        starts = (start for start, _ in entry.spans)
        given = dict(zip(starts, surfaces, strict=False))
        with self._lock:
            self._gone(entry.number, given)
            self.bytes_copied += 2 * sum(size for _, size in entry.spans)
            spans = entry.spans[len(surfaces) :]
            ports = entry.program.outputs
            return [self._array(p, span) for p, span in zip(ports, spans, strict=True)]

    def plan(self, steps: Sequence[Step], *, room: int) -> LoadedPlan:
        """A plan of steps on loaded programs.

        Args:
            steps: what is done, in order.
            room: bytes of the shared block that they name.
        """
        with self._lock:
            self._count += 1
            made = LoadedPlan(self, self._count, steps, room)
            self._tell(made)
            self._plans.append(made)
        return made

    def done(self, plan: LoadedPlan, given: Mapping[int, Array]) -> list[bytes]:
        """What a plan takes out."""
        reads = [step for step in plan.steps if isinstance(step, Read)]
        writes = [step for step in plan.steps if isinstance(step, Write)]
        with self._lock:
            self._gone(plan.number, given)
            self.bytes_copied += 2 * sum(of.size for of in reads) + 2 * sum(
                of.size for of in writes
            )
            return [bytes(self._spool.block[step.start : step.start + step.size]) for step in reads]

    def _gone(self, plan: int, given: Mapping[int, Array]) -> None:
        """Do a plan; once more where the worker died of something else.

        Raises:
            WorkerLostError: the same would happen again, or did.
            BackendError: the device fails.
        """
        try:
            self._went(plan, given)
        except WorkerLostError as lost:
            self._respawn(lost)
            if not lost.may_repeat:
                raise
            self._went(plan, given)

    def _went(self, plan: int, given: Mapping[int, Array]) -> None:
        for start, array in given.items():
            self._spool.block[start : start + array.nbytes] = _bytes(array)
        self._process.ask("go", plan=plan)

    def _array(self, port: Port, span: tuple[int, int]) -> Array:
        start, size = span
        found = np.frombuffer(self._spool.block[start : start + size], port.type.dtype.numpy)
        return found.reshape(port.type.shape).copy()

    def reload(self, entry: _Entry, renewed: Program, *, purge: bool = False) -> None:
        """Exchange a program's blob files."""
        with self._lock:
            try:
                files = self._spool.blobs(renewed)
                self._process.ask("reload", program=entry.number, files=files, purge=purge)
            except WorkerLostError as lost:
                self._respawn(lost)
                raise
            except BackendError:
                if self._process.is_open:
                    self._spool.let_go(renewed)
                raise
            self._spool.let_go(entry.program)
            entry.program = renewed

    def drop(self, entry: _Entry) -> None:
        """Unload a program later: a finalizer may run in the middle of anything."""
        self._dropped.append(entry)

    def _clear(self) -> None:
        while self._dropped:
            self.close_program(self._dropped.popleft())

    def close_program(self, entry: _Entry) -> None:
        """Unload a program."""
        with self._lock:
            del self._entries[entry.number]
            if not self._process.is_open:
                return
            self._spool.let_go(entry.program)
            try:
                self._process.ask("close", program=entry.number)
            except WorkerLostError as lost:
                self._respawn(lost)  # which has not loaded it

    def close(self) -> None:
        """End the worker; a second call does nothing."""
        self._process.close()


def _nothing(_: object) -> None:
    """No room is counted where no target says how much there is."""


def _want_readable(program: Program) -> None:
    """Refuse a text or blob files that cannot be read: here with words, there with a code.

    Raises:
        MilError: they cannot, or do not fit the ports.
    """
    graph = parse_graph(program.text)
    check_ports("input", program.inputs, graph.inputs)
    check_ports("output", program.outputs, graph.outputs)
    weights_of(graph, program.weights)


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
