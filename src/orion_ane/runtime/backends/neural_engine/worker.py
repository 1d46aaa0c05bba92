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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from orion_ane.errors import BackendError
from orion_ane.runtime.backends.neural_engine import folders, wire
from orion_ane.runtime.backends.neural_engine.device import Device, Model, Request
from orion_ane.runtime.backends.neural_engine.objc import Runtime, function
from orion_ane.runtime.backends.neural_engine.plan import (
    Add,
    Copy,
    Place,
    Read,
    Run,
    Step,
    Write,
    steps_of,
)
from orion_ane.runtime.backends.neural_engine.surface import Surface

RAISED = 70
"""The exit code after an Objective-C exception, which nothing in a process survives."""


class Loaded:
    """A program with surfaces of its own."""

    def __init__(self, device: Device, model: Model, inputs: list[int], outputs: list[int]) -> None:
        self.model = model
        self.inputs = [device.surfaces.make(size) for size in inputs]
        self.outputs = [device.surfaces.make(size) for size in outputs]
        self.request: Request = device.request(self.inputs, self.outputs)

    def close(self) -> None:
        """Unload it and give back its surfaces.

        Raises:
            BackendError: it could not be unloaded.
        """
        try:
            self.model.close()
        finally:
            self.request.close()
            for surface in (*self.inputs, *self.outputs):
                surface.close()


class Worker:
    """Does what it is asked, one message after another.

    Args:
        device: what it holds.
        folder: shared with the one who asks.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        self._device, self._folder = device, folder
        self._loaded: dict[int, Loaded] = {}
        self._plans: dict[int, tuple[Step, ...]] = {}
        self._block: Any = memoryview(b"")
        self.answers: dict[str, Callable[..., dict[str, Any]]] = {
            "block": self.block,
            "compile": self.compile,
            "load": self.load,
            "reload": self.reload,
            "close": self.close,
            "plan": self.plan,
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
        return self._made(payload, lambda model: model.take_plan(self._loaded[donor].model), **of)

    def _made(
        self,
        text: bytes,
        prepare: Callable[[Model], None],
        *,
        program: int,
        files: dict[str, str],
        inputs: list[int],
        outputs: list[int],
    ) -> dict[str, Any]:
        model = self._device.model(text.decode(), self._files(files))
        try:
            prepare(model)
            self._loaded[program] = Loaded(self._device, model, inputs, outputs)
        except BackendError:
            model.close()
            raise
        return {"compiles": self._device.compiles}

    def _files(self, files: dict[str, str]) -> dict[str, Path]:
        return {path: self._folder / name for path, name in files.items()}

    def reload(self, program: int, files: dict[str, str], *, purge: bool = False) -> dict[str, Any]:
        """Lay other blob files where a program's are, and load it again."""
        self._loaded[program].model.reload(self._files(files), purge=purge)
        return {}

    def close(self, program: int) -> dict[str, Any]:
        """Unload a program, and forget its plan."""
        self._plans.pop(program, None)
        self._loaded.pop(program).close()
        return {}

    def plan(self, plan: int, steps: list[list[Any]]) -> dict[str, Any]:
        """Keep a plan."""
        self._plans[plan] = steps_of(steps)
        return {}

    def go(self, plan: int) -> dict[str, Any]:
        """Do what a plan says."""
        for step in self._plans[plan]:
            self._do(step)
        return {}

    def _do(self, step: Step) -> None:
        match step:
            case Run():
                loaded = self._loaded[step.program]
                loaded.model.evaluate(loaded.request)
            case Write():
                with self._at(step.to).mapped() as surface:
                    surface[: step.size] = self._block[step.start : step.start + step.size]
            case Read():
                with self._at(step.of).mapped(to_read=True) as surface:
                    self._block[step.start : step.start + step.size] = surface[: step.size]
            case Copy():
                with (
                    self._at(step.of).mapped(to_read=True) as source,
                    self._at(step.to).mapped() as target,
                ):
                    target[: step.size] = source[: step.size]
            case Add():
                self._add(step)

    def _add(self, step: Add) -> None:
        dtype = np.dtype({"fp16": np.float16, "fp32": np.float32}[step.dtype])
        with (
            self._at(step.one).mapped(to_read=True) as one,
            self._at(step.other).mapped(to_read=True) as other,
        ):
            views = (np.frombuffer(view, dtype, step.count) for view in (one, other))
            first, second = (view.astype(np.float32) for view in views)
        with self._at(step.to).mapped() as target:
            np.frombuffer(target, dtype, step.count)[:] = first + second

    def _at(self, place: Place) -> Surface:
        loaded = self._loaded[place.program]
        return (loaded.inputs if place.is_input else loaded.outputs)[place.port]

    def end(self) -> None:
        """Unload all, and remove what is shared."""
        for loaded in self._loaded.values():
            try:
                loaded.close()
            except BackendError as error:
                print(error, file=sys.stderr)  # noqa: T201 - nobody is left to be told otherwise
        folders.release_all(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)


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
