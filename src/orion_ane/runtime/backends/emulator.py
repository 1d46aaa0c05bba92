"""The emulator: a device in software, with a target's limits, and what breaking them does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import get_args

from orion_ane.ane.check import want_kept
from orion_ane.ane.faults import Misbehaviour, misbehave
from orion_ane.ane.faults.blobs import unchecked
from orion_ane.ane.faults.loud import HINT
from orion_ane.ane.targets import Behaviour, Target
from orion_ane.ane.targets import target as find_target
from orion_ane.engine import Lowered, Numerics
from orion_ane.errors import BackendError, ConfigError
from orion_ane.mil.parse import parse, parse_graph
from orion_ane.mil.program import Buffer, Program
from orion_ane.ops import Weight
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.budget import Budget
from orion_ane.runtime.portable import (
    NumericsName,
    PortableBackend,
    PortableProgram,
    of_donor,
    weights_of,
)
from orion_ane.types import Array


class EmulatedProgram(PortableProgram):
    """A program as a device with a target's limits has it loaded.

    Args:
        program: what to load.
        made: what the device makes of its text.
        device: the emulator that loads it.
        behaviour: the device's ways with weights.
        budget: whose room it takes.
        numerics: how the engine rounds.
        threads: how many threads the engine may use.
    """

    def __init__(
        self,
        program: Program,
        made: Misbehaviour,
        device: object,
        behaviour: Behaviour,
        budget: Budget,
        *,
        numerics: Numerics,
        threads: int,
    ) -> None:
        self.made, self._behaviour, self._budget = made, behaviour, budget
        super().__init__(program, made.graph, device, numerics=numerics, threads=threads)

    def reload(self, weights: Mapping[str, Buffer]) -> None:
        """Exchange the blob files, which the device may refuse, or not notice."""
        self._open()
        if self._behaviour.reload == "refused":
            raise BackendError(
                "reload", "the device refuses it", hint="load by a donor, or compile"
            )
        super().reload(weights)

    def bind(
        self,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        growing: Collection[str] = (),
    ) -> None:
        """None: what a device makes of its surfaces is looked at in each run."""

    def take_weights(self, donor: EmulatedProgram) -> None:
        """Run with a donor's weights, as a device does that keeps what it compiled."""
        tape = donor._open()
        with self._lock:
            self._tape = tape

    def _reloaded(self, old: Lowered, new: Lowered) -> Lowered:
        return old if self._behaviour.reload == "old" else new

    def close(self) -> None:
        """Unload; a second call does nothing."""
        super().close()
        self._budget.unload(self)

    def _evaluated(self, tape: Lowered, fed: Mapping[str, Array]) -> dict[str, Array]:
        found = super()._evaluated(tape, fed)
        return found if self.made.outputs is None else self.made.outputs.leave(found)

    def _entered(self, fed: Mapping[str, Array]) -> Mapping[str, Array]:
        if self.made.failure:
            raise BackendError("run", self.made.failure, hint=HINT)
        return fed if self.made.inputs is None else self.made.inputs.enter(fed)

    def _weights(self, files: Mapping[str, Buffer]) -> dict[Weight, Array]:
        frozen = {path: _frozen(data) for path, data in files.items()}
        known = {weight: unchecked(weight, frozen) for weight in self.made.unchecked}
        return weights_of(self.graph, frozen, known)


class Emulator(PortableBackend):
    """Runs programs as a device would, from text and bytes, with the target's own arithmetic.

    Args:
        threads: how many threads at most; by default one a processor.
        target: the device: a name, a probe's file, or a target; None is one without limits.
        checks: refuse what breaks a limit, naming all of them; else do what the device would.
        numerics: `exact`, the target's own arithmetic and the default where there is a target;
            `fp16`, which computes in fp32 and rounds after every op; or `fp32`.
        clock: seconds that only grow, by which failed compiles are paced.

    Raises:
        ConfigError: no such number of threads, target or numerics, or exact ones without a target.
    """

    name: str = "emulator"

    def __init__(
        self,
        *,
        threads: int | None = None,
        target: str | Path | Target | None = "strict",
        checks: bool = True,
        numerics: NumericsName | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        found = find_target(target) if isinstance(target, str | Path) else target
        super().__init__(threads=threads, numerics=_known(numerics, found))
        self.target = found
        self.checks = checks
        self._budget = None if self.target is None else Budget(self.target, clock)

    def compile(self, program: Program) -> Executable:
        """Compile and load a program, or refuse it; see `Backend`."""
        if self.target is None or self._budget is None:
            return super().compile(program)
        if self.checks:
            want_kept(program, self.target)
        with self._budget.compiling() as take:
            made = self._read(program, self.target)
            loaded = self._emulated(program, made, self.target, self._budget)
            take(loaded)
        with self._lock:
            self._compiles += 1
        return loaded

    def _read(self, program: Program, target: Target) -> Misbehaviour:
        """What the device makes of a text; of one that was checked, what it means."""
        if self.checks:
            return Misbehaviour(parse_graph(program.text))
        return misbehave(parse(program.text, tolerant=True), program.weights, target)

    def load(self, program: Program, *, donor: Executable) -> Executable:
        """Load a program by a donor's code; see `Backend`."""
        if self.target is None or self._budget is None:
            return super().load(program, donor=donor)
        found = of_donor(program, donor, self, EmulatedProgram)
        answer = self.target.behaviour.donor
        if answer == "refused":
            raise BackendError("load", "the device takes no donor", hint="compile the program")
        with self._budget.loading() as take:
            loaded = self._emulated(program, found.made, self.target, self._budget)
            if answer == "old":
                loaded.take_weights(found)
            take(loaded)
        with self._lock:
            self._loads += 1
        return loaded

    def _emulated(
        self, program: Program, made: Misbehaviour, target: Target, budget: Budget
    ) -> EmulatedProgram:
        return EmulatedProgram(program, made, self, target.behaviour, budget, **self._options)


def _known(numerics: NumericsName | None, of: Target | None) -> NumericsName:
    """The numerics that are asked for, or those of a device.

    Raises:
        ConfigError: there are none such, or nobody's arithmetic is asked for.
    """
    if numerics is None:
        return "fp16" if of is None else "exact"
    if numerics not in (mine := [name for name in get_args(NumericsName) if name != "bf16"]):
        want, hint = ", ".join(mine), "device cpu takes it" if numerics == "bf16" else None
        raise ConfigError("numerics", "no such numerics", got=numerics, want=want, hint=hint)
    if numerics == "exact" and of is None:
        hint = "name a target, whose arithmetic that is"
        raise ConfigError("numerics", "exact, without a target", hint=hint)
    return numerics


def _frozen(data: Buffer) -> Buffer:
    """A file as it is now: the device has read it, and what is written to it later is not seen."""
    return data if memoryview(data).readonly else bytes(data)
