"""Session: a device that is asked, and replaced where an answer has spoilt it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from orion_ane.errors import BackendError, BudgetError, MilError
from orion_ane.mil import IOS18, Program
from orion_ane.runtime.backend import Backend, Executable
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.runtime.backends.neural_engine.process import WorkerLostError
from orion_ane.types import Array

ENOUGH = 60
"""After so many compiles a device is replaced, so that none is refused for their number."""


@dataclass(frozen=True)
class Outcome:
    """What came of a program that was compiled and run once.

    Attributes:
        found: its outputs; None where there are none.
        stage: `compile` or `run`, where the device ended it; else empty.
        error: the device's words for that.
    """

    found: Mapping[str, Array] = field(default_factory=dict)
    stage: str = ""
    error: str = ""

    @property
    def ran(self) -> bool:
        """Whether there are outputs."""
        return not self.stage

    def word(self, wanted: Array, *, within: float = 0.0) -> str:
        """How its one output, or its first, compares with what the text means.

        Args:
            wanted: that.
            within: how far it may be off, in units and in parts of the value.
        """
        if self.stage:
            return "refused" if self.stage == "compile" else "fails"
        value = next(iter(self.found.values())).astype(np.float64)
        if np.allclose(value, wanted.astype(np.float64), rtol=within, atol=within):
            return "right"
        return "zeros" if not value.any() else "other values"

    def seen(self, word: str) -> str:
        """A word with what the device said."""
        return f"{word}: {self.error}" if self.error else word


class Session:
    """A device that is asked one question after another.

    Args:
        opened: opens the device, each time anew; it checks nothing of what it is given.
        is_real: what it computes and how long it takes is a Neural Engine's.
        pause_s: seconds to wait after a compile that failed, as projects report that bursts of
            them stall the system's compiler.
        sleep: waits.
    """

    def __init__(
        self,
        opened: Callable[[], Backend],
        *,
        is_real: bool = False,
        pause_s: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.opened, self.is_real = opened, is_real
        self.dialect = IOS18
        self._pause_s, self._sleep = pause_s, sleep
        self._device: Backend | None = None
        self._known: Program | None = None
        self._asked = 0

    @property
    def device(self) -> Backend:
        """The device, which is opened when it is first asked."""
        if self._device is None:
            self._device = self.opened()
        return self._device

    def know(self, program: Program) -> None:
        """Note a program that runs: where it is refused later, the device is spent."""
        self._known = program

    def renew(self) -> None:
        """Ask another device from now on."""
        self.close()

    def close(self) -> None:
        """End the device; a second call does nothing."""
        if self._device is not None:
            ended(self._device)
        self._device, self._asked = None, 0

    def compile(self, program: Program) -> Executable:
        """A program, compiled; in a fresh device where this one takes no program any more.

        Raises:
            BackendError: the device refuses it.
            MilError: it is not MIL as this project reads it.
        """
        if self._asked >= ENOUGH:
            self.renew()
        self._asked += 1
        try:
            return self.device.compile(program)
        except WorkerLostError:
            raise
        except BackendError as error:
            self._sleep(self._pause_s)
            if not isinstance(error, BudgetError) and self._is_well():
                raise
        self.renew()
        return self.device.compile(program)

    def _is_well(self) -> bool:
        """Whether the device takes a program that it took before."""
        if self._known is None:
            return True
        try:
            self.device.compile(self._known).close()
        except BackendError:
            self._sleep(self._pause_s)
            return False
        return True

    def tried(self, program: Program, fed: Mapping[str, Array]) -> Outcome:
        """What comes of a program.

        Raises:
            WorkerLostError: it ended the worker.
        """
        try:
            made = self.compile(program)
        except WorkerLostError:
            raise
        except (BackendError, MilError) as error:
            return Outcome(stage="compile", error=worded(error))
        try:
            return Outcome(made.run(fed))
        except WorkerLostError:
            raise
        except BackendError as error:
            return Outcome(stage="run", error=worded(error))
        finally:
            made.close()


def ended(device: Backend) -> None:
    """Close a device that has something to close."""
    if isinstance(device, NeuralEngine):
        device.close()


def worded(error: Exception) -> str:
    """An error's first line."""
    return str(error).partition("\n")[0][:300]
