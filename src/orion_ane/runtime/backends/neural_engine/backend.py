"""Device `ane`: programs on the Neural Engine, through a worker that may die and is replaced."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from orion_ane.ane.check import want_kept
from orion_ane.ane.targets import Target
from orion_ane.ane.targets import target as find_target
from orion_ane.errors import BackendError, MilError
from orion_ane.mil.parse import parse_graph
from orion_ane.mil.program import Buffer, Program
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.backends.neural_engine.chain import EngineChain, Plan
from orion_ane.runtime.backends.neural_engine.libraries import libraries
from orion_ane.runtime.backends.neural_engine.process import Process, Spool, WorkerLostError
from orion_ane.runtime.budget import Budget
from orion_ane.runtime.chain import Call, Link
from orion_ane.runtime.portable import check_layout, check_ports, weights_of
from orion_ane.runtime.surfaces import want_known
from orion_ane.types import Array

log = logging.getLogger(__name__)

COMPILES = 100
"""After so many compiles a worker is replaced: processes were refused more from 105 on."""
IN, OUT = "in ", "out "
"""Before the names of a program's own ports, of which an input and an output may share one."""
T = TypeVar("T")


@dataclass(eq=False)
class _Entry:
    """What is to be loaded, so that a new worker can be brought to it.

    Attributes:
        program: as it was compiled, or loaded by a donor, or reloaded last.
        number: by which the worker knows it.
    """

    program: Program
    number: int


class LoadedProgram:
    """A program that is loaded in the worker."""

    def __init__(self, device: NeuralEngine, entry: _Entry) -> None:
        self.device, self._entry = device, entry
        self._is_open = True
        self._alone: EngineChain | None = None
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
        self.want_open()
        program = self.program
        want_known(program.inputs, inputs)
        if self._alone is None:
            self._alone = self.device.chain([program], [call_of(program)], taken_of(program))
        found = self._alone.run([self], {IN + name: array for name, array in inputs.items()})
        return {port.name: found[OUT + port.name] for port in program.outputs}

    def reload(self, weights: Mapping[str, Buffer], *, purge: bool = False) -> None:
        """Exchange the blob files; see `Executable`.

        Args:
            weights: by their paths.
            purge: let the system forget what it compiled, in between.
        """
        self.want_open()
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
            if self._alone is not None:
                self._alone.close()
            self.device.close_program(self._entry)

    def want_open(self) -> None:
        """Refuse to go on with what was closed.

        Raises:
            BackendError: it was.
        """
        if not self._is_open:
            raise BackendError("program", "is closed", hint="compile it again")


class NeuralEngine:
    """The Neural Engine of this machine.

    Args:
        target: the limits that programs have to keep, and the device's other answers: a name, a
            probe's file, or a target; None checks nothing and leaves it to the device.
        timeout_s: how long an answer of the device may take.
        compiles_each: after how many compiles a worker is replaced.
        clock: seconds that only grow, by which failed compiles are paced.

    Attributes:
        name: `ane`; of a stand-in, whatever reports the device says that it is one.
        stand_in: the folder of the libraries, where they are not Apple's: then nothing was run on
            a Neural Engine.

    Raises:
        BackendError: there is no Neural Engine here, or it is not what the bridge was written for.
        ConfigError: no such target.
    """

    def __init__(
        self,
        *,
        target: str | Path | Target | None = "strict",
        timeout_s: float = 60.0,
        compiles_each: int = COMPILES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stand_in = libraries().stand_in
        self.name = "ane" if self.stand_in is None else "ane (stand-in)"
        if self.stand_in is not None:
            what = "device ane: %s has a stand-in: nothing runs on a Neural Engine"
            log.warning(what, self.stand_in)
        self.target = find_target(target) if isinstance(target, str | Path) else target
        self._timeout_s, self._compiles_each = timeout_s, compiles_each
        self._budget = None if self.target is None else Budget(self.target, clock)
        self._lock = threading.RLock()
        self._entries: dict[int, _Entry] = {}
        self._dropped: deque[_Entry | Plan] = deque()
        self._count = self._compiles = self._loads = self._used = 0
        self.respawns = self.bytes_copied = 0
        self._start()

    # The worker

    def _start(self) -> None:
        self.process, self.spool = self._begun()
        self._used = 0

    def _begun(self) -> tuple[Process, Spool]:
        process = Process(timeout_s=self._timeout_s)
        return process, Spool(process)

    def _respawn(self, why: object) -> None:
        """A new worker with what the old one had loaded, each program from its own weights."""
        log.warning("device ane: %s; a new worker loads %d programs", str(why), len(self._entries))
        self.respawns += 1
        self.process.close()
        self._start()
        for entry in self._entries.values():
            self._used = self._sent("compile", entry)["compiles"]

    def _sent(self, op: str, entry: _Entry, **more: Any) -> dict[str, Any]:
        """The answer to a program that the worker is to load."""
        program = entry.program
        files = self.spool.blobs(program)
        return self.process.ask(
            op, program.text.encode(), program=entry.number, files=files, **more
        )

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
        return self.process.round_trips

    @property
    def worker(self) -> int:
        """The number of the worker's process."""
        return self.process.pid

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
            if self.process.is_open:
                self.spool.let_go(entry.program)
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
        self._count += 1
        return _Entry(program, self._count)

    # Chains

    def chain(
        self, programs: Sequence[Program], links: Sequence[Link], takes: Collection[str]
    ) -> EngineChain:
        """A chain, whose programs run in one message; see `Chains`."""
        with self._lock:
            self._clear()
            self._count += 1
            return EngineChain(self, Plan(self._count), programs, links, takes)

    def numbers_of(self, loaded: Sequence[Executable]) -> list[int]:
        """By which the worker knows programs.

        Raises:
            BackendError: one is not loaded on this device.
        """
        for made in loaded:
            if not isinstance(made, LoadedProgram) or made.device is not self:
                raise BackendError("chain", "a program of another device", got=type(made).__name__)
            made.want_open()
        return [made.number for made in loaded if isinstance(made, LoadedProgram)]

    def repeated(self, do: Callable[[], T]) -> T:
        """Ask the worker for a run; once more where it died of something else.

        Raises:
            WorkerLostError: the same would happen again, or did.
            BackendError: the device fails.
        """
        with self._lock:
            try:
                return do()
            except WorkerLostError as lost:
                self._respawn(lost)
                if not lost.may_repeat:
                    raise
                return do()

    def forget(self, plan: Plan) -> None:
        """Give up a plan, if this worker knows it."""
        with self._lock:
            if plan.known_by is not self.process or not self.process.is_open:
                return
            plan.known_by = None
            try:
                self.process.ask("forget", plan=plan.number)
            except WorkerLostError as lost:
                self._respawn(lost)

    # What a loaded program asks

    def reload(self, entry: _Entry, renewed: Program, *, purge: bool = False) -> None:
        """Exchange a program's blob files."""
        with self._lock:
            try:
                files = self.spool.blobs(renewed)
                self.process.ask("reload", program=entry.number, files=files, purge=purge)
            except WorkerLostError as lost:
                self._respawn(lost)
                raise
            except BackendError:
                if self.process.is_open:
                    self.spool.let_go(renewed)
                raise
            self.spool.let_go(entry.program)
            entry.program = renewed

    def drop(self, unused: _Entry | Plan) -> None:
        """Unload a program later, or give up a plan: a finalizer may run amid anything."""
        self._dropped.append(unused)

    def _clear(self) -> None:
        while self._dropped:
            unused = self._dropped.popleft()
            if isinstance(unused, Plan):
                self.forget(unused)
            else:
                self.close_program(unused)

    def close_program(self, entry: _Entry) -> None:
        """Unload a program."""
        with self._lock:
            del self._entries[entry.number]
            if not self.process.is_open:
                return
            self.spool.let_go(entry.program)
            try:
                self.process.ask("close", program=entry.number)
            except WorkerLostError as lost:
                self._respawn(lost)  # which has not loaded it

    def close(self) -> None:
        """End the worker; a second call does nothing."""
        self.process.close()


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


def call_of(program: Program) -> Call:
    """A program's run on values of its ports' names."""
    return Call(
        0,
        {port.name: IN + port.name for port in program.inputs},
        {port.name: OUT + port.name for port in program.outputs},
    )


def taken_of(program: Program) -> list[str]:
    """What `call_of` writes."""
    return [OUT + port.name for port in program.outputs]
