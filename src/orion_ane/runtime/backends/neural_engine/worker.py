"""The process that holds the device: what ends it ends no more than itself.

It is started with the folder that it shares with the one who asks, answers each message on what was
its standard output, and ends, with nothing left behind, when its input does.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine import folders, wire
from orion_ane.runtime.backends.neural_engine.device import Device, Model, Request
from orion_ane.runtime.backends.neural_engine.objc import Runtime, function
from orion_ane.runtime.backends.neural_engine.plan import Lay, Move, Run, Scale, Step, steps_of
from orion_ane.runtime.backends.neural_engine.surface import Surface

RAISED = 70
"""The exit code after an Objective-C exception, which nothing in a process survives."""


class Planned:
    """A plan with its surfaces, and what each of its programs reads and writes of them.

    Args:
        device: which makes them.
        sizes: of the surfaces.
        steps: what is done.

    Raises:
        BackendError: there is no memory for the surfaces.
    """

    def __init__(self, device: Device, sizes: list[int], steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.surfaces: list[Surface] = []
        self.requests: dict[Run, Request] = {}
        try:
            for size in sizes:
                self.surfaces.append(device.surfaces.make(size))
            for run in (step for step in steps if isinstance(step, Run)):
                if run not in self.requests:
                    inputs, outputs = (
                        [self.surfaces[i] for i in side] for side in (run.inputs, run.outputs)
                    )
                    self.requests[run] = device.request(inputs, outputs)
        except BackendError:
            self.close()
            raise

    def close(self) -> None:
        """Give back its surfaces."""
        for request in self.requests.values():
            request.close()
        for surface in self.surfaces:
            surface.close()


class Worker:
    """Does what it is asked, one message after another.

    Args:
        device: what it holds.
        folder: shared with the one who asks.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        self._device, self._folder = device, folder
        self._loaded: dict[int, Model] = {}
        self._plans: dict[int, Planned] = {}
        self._block: Any = memoryview(b"")
        self.answers: dict[str, Callable[..., dict[str, Any]]] = {
            "block": self.block,
            "compile": self.compile,
            "load": self.load,
            "reload": self.reload,
            "close": self.close,
            "plan": self.plan,
            "forget": self.forget,
            "go": self.go,
        }

    def block(self, name: str) -> dict[str, Any]:
        """Take another file for tensors."""
        with (self._folder / name).open("r+b") as file:
            self._block = memoryview(mmap.mmap(file.fileno(), 0))
        return {}

    def compile(self, payload: bytes, **of: Any) -> dict[str, Any]:
        """Compile and load a program."""
        return self._made(payload, lambda model: model.compile(), **of)

    def load(self, payload: bytes, donor: int, **of: Any) -> dict[str, Any]:
        """Load a program by the plan of another."""
        return self._made(payload, lambda model: model.take_plan(self._loaded[donor]), **of)

    def _made(
        self,
        text: bytes,
        prepare: Callable[[Model], None],
        *,
        program: int,
        files: dict[str, str],
    ) -> dict[str, Any]:
        model = self._device.model(text.decode(), self._files(files))
        try:
            prepare(model)
        except BackendError:
            model.close()
            raise
        self._loaded[program] = model
        return {"compiles": self._device.compiles}

    def _files(self, files: dict[str, str]) -> dict[str, Path]:
        return {path: self._folder / name for path, name in files.items()}

    def reload(self, program: int, files: dict[str, str], *, purge: bool = False) -> dict[str, Any]:
        """Lay other blob files where a program's are, and load it again."""
        self._loaded[program].reload(self._files(files), purge=purge)
        return {}

    def close(self, program: int) -> dict[str, Any]:
        """Unload a program."""
        self._loaded.pop(program).close()
        return {}

    def plan(self, plan: int, surfaces: list[int], steps: list[list[Any]]) -> dict[str, Any]:
        """Keep a plan."""
        self._plans[plan] = Planned(self._device, surfaces, steps_of(steps))
        return {}

    def forget(self, plan: int) -> dict[str, Any]:
        """Give up a plan."""
        self._plans.pop(plan).close()
        return {}

    def go(
        self,
        plan: int,
        writes: list[tuple[int, int]],
        programs: list[int],
        numbers: list[float],
        steps: tuple[int, int],
        reads: list[tuple[int, int]],
    ) -> dict[str, Any]:
        """Do steps of a plan.

        Args:
            plan: its number.
            writes: surfaces, and where in the block lies what goes into each before.
            programs: the numbers of those that run.
            numbers: whatever steps name.
            steps: the first that is done, and the first that is not.
            reads: surfaces, and where in the block each goes afterwards.
        """
        planned = self._plans[plan]
        for number, start in writes:
            surface = planned.surfaces[number]
            with surface.mapped() as view:
                view[:] = self._block[start : start + surface.size]
        for step in planned.steps[slice(*steps)]:
            if isinstance(step, Run):
                self._loaded[programs[step.program]].evaluate(planned.requests[step])
            else:
                _do(step, planned.surfaces, numbers)
        for number, start in reads:
            surface = planned.surfaces[number]
            with surface.mapped(to_read=True) as view:
                self._block[start : start + surface.size] = view
        return {}

    def end(self) -> None:
        """Unload all, and remove what is shared."""
        for planned in self._plans.values():
            planned.close()
        for model in self._loaded.values():
            try:
                model.close()
            except BackendError as error:
                print(error, file=sys.stderr)  # noqa: T201 - nobody is left to be told otherwise
        folders.release_all(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)


def _do(step: Move | Lay | Scale, surfaces: Sequence[Surface], numbers: list[float]) -> None:
    """What the processor does between two programs."""
    with (
        surfaces[step.of.surface].mapped(to_read=True) as read,
        surfaces[step.to.surface].mapped() as written,
    ):
        of, to = step.of.array(read), step.to.array(written)
        match step:
            case Move():
                to[...] = of
            case Lay():
                count, first, at = (int(numbers[i]) for i in (step.count, step.first, step.at))
                to[..., at : at + count] = of[..., first : first + count]
            case Scale():
                over, by = (np.float32(numbers[i]) for i in (step.over, step.by))
                with np.errstate(all="ignore"):
                    to[...] = of.astype(np.float32) / over * by


def _tell_exceptions(runtime: Runtime, answers: int) -> object:
    """Let the last words of this process be the exception that ends it.

    Returns:
        What has to live as long as the process.
    """
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def last_words(exception: int) -> NoReturn:
        try:
            name, reason = runtime.exception(exception)
            wire.send(answers, {"raised": name, "reason": reason})
        finally:
            os._exit(RAISED)

    told = kind(last_words)
    function(runtime.foundation, "NSSetUncaughtExceptionHandler", None, kind)(told)
    return told


def main(folder: Path) -> None:
    """Answer until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what the framework prints is no answer
    try:
        device = Device(folder)
    except BackendError as error:
        wire.send(answers, _failed(error))
        return
    try:
        told = _tell_exceptions(device.runtime, answers)
    except (MemoryError, OSError) as error:
        # No memory that may be executed, as under a hardened Python: an exception is nameless then.
        print(f"exceptions will be nameless: {error}", file=sys.stderr)  # noqa: T201
    worker = Worker(device, folder)
    try:
        wire.send(answers, {"ready": os.getpid()})
        while True:
            message, payload = wire.receive(0)
            answer = worker.answers[message.pop("op")]
            if payload:
                message["payload"] = payload
            try:
                wire.send(answers, answer(**message))
            except BackendError as error:
                wire.send(answers, _failed(error))
    except wire.Ended:
        worker.end()
    del told


def _failed(error: BackendError) -> dict[str, Any]:
    return {
        "failed": [error.where, error.what],
        "got": _text(error.got),
        "want": _text(error.want),
        "hint": error.hint,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
