"""The worker as seen by the one who asks: started, asked, and told apart from a dead one."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

from orion_ane.errors import BackendError
from orion_ane.mil.program import Program, buffer_digest
from orion_ane.runtime.backends.neural_engine import folders, wire

MODULE = "orion_ane.runtime.backends.neural_engine.worker"
PREFIX = "orion-ane-worker"
START_S = 120.0
END_S = 10.0


class WorkerLostError(BackendError):
    """The worker is gone; `may_repeat` where it may not happen again."""

    def __init__(self, where: str, what: str, *, may_repeat: bool, got: object = None) -> None:
        self.may_repeat = may_repeat
        hint = "a new worker has taken over, with the same programs"
        super().__init__(where, what, got=got, hint=hint)


class Process:
    """One worker, and the folder that is shared with it.

    Args:
        timeout_s: how long an answer may take.

    Raises:
        BackendError: there is no device, or it is not what the bridge was written for.
    """

    def __init__(self, *, timeout_s: float) -> None:
        _sweep()
        self._timeout_s = timeout_s
        made = tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-")
        self.folder = Path(made)
        command = [sys.executable, "-m", MODULE, made]
        # A new interpreter, not a fork: Objective-C ends processes that were forked.
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._asks, self._answers = self._child.stdin.fileno(), self._child.stdout.fileno()
        self._end = weakref.finalize(self, _end, self._child, self.folder)
        self.round_trips = 0
        try:
            answer = self._answer("start", START_S)
        except WorkerLostError:
            self.close()
            raise
        if "failed" in answer:
            self.close()
            _raise(answer)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.pid

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return self._end.alive

    def want_open(self) -> None:
        """Refuse to go on with what was closed: its pipes' numbers may be another file's by now.

        Raises:
            BackendError: it was closed.
        """
        if not self.is_open:
            raise BackendError("device ane", "is closed", hint="open it again")

    def ask(
        self, op: str, payload: bytes = b"", *, where: str = "", **message: Any
    ) -> dict[str, Any]:
        """What the worker answers.

        Args:
            op: what is asked.
            payload: bytes behind the message.
            where: what an error calls it; by default `op`.
            **message: what belongs to it.

        Raises:
            WorkerLostError: it ended, or was ended because it did not answer in time.
            BackendError: the device refuses or fails, or this was closed.
        """
        self.want_open()
        self.round_trips += 1
        try:
            wire.send(self._asks, {"op": op, **message}, payload)
        except wire.Ended:
            raise self._lost(where or op) from None
        answer = self._answer(where or op, self._timeout_s)
        if "failed" in answer:
            _raise(answer)
        return answer

    def _answer(self, op: str, timeout_s: float) -> dict[str, Any]:
        try:
            answer, _ = wire.receive(self._answers, timeout_s)
        except wire.Silent:
            self._child.kill()
            self._child.wait()
            what = f"no answer in {timeout_s:g} s; the worker was ended"
            raise WorkerLostError(op, what, may_repeat=False) from None
        except wire.Ended:
            raise self._lost(op) from None
        if "raised" in answer:
            self._child.wait()
            what = f"{answer['raised']}: {answer['reason']}"
            raise WorkerLostError(op, what, may_repeat=False)
        return answer

    def _lost(self, op: str) -> WorkerLostError:
        code = self._child.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerLostError(op, "the worker ended", got=how, may_repeat=True)

    def close(self) -> None:
        """End it, and remove what is shared; a second call does nothing."""
        self._end()


def _end(child: subprocess.Popen[bytes], folder: Path) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    _remove(folder)


def _remove(folder: Path) -> None:
    """What a worker that is gone has left: the framework's folders, then its own."""
    folders.release_all(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what processes have left that were killed together with their workers."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
        owner = folder.name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if not owner.isdigit() or _lives(int(owner)) or folder.stat().st_uid != os.getuid():
            continue
        _remove(folder)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _raise(answer: dict[str, Any]) -> None:
    where, what = answer["failed"]
    raise BackendError(where, what, got=answer["got"], want=answer["want"], hint=answer["hint"])


class Spool:
    """Files that are shared with a worker: blobs by their digest, and one block for tensors.

    Args:
        process: the worker.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._users: Counter[str] = Counter()
        self._blocks = 0
        self._name = ""
        self.block = memoryview(b"")

    def blobs(self, program: Program) -> dict[str, str]:
        """The names of a program's blob files by their path in the text; each is written once.

        Raises:
            BackendError: the worker was closed, and its folder is gone.
        """
        self._process.want_open()
        named = names(program)
        for path, name in named.items():
            if not self._users[name]:
                (self._process.folder / name).write_bytes(program.weights[path])
            self._users[name] += 1
        return named

    def let_go(self, program: Program) -> None:
        """Remove the files that no other program reads."""
        for name in names(program).values():
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                (self._process.folder / name).unlink(missing_ok=True)

    def make_room(self, size: int) -> None:
        """Let the block have at least that many bytes; what was in it may be lost."""
        if size <= len(self.block):
            return
        self._blocks += 1
        before, self._name = self._name, f"block-{self._blocks}"
        with (self._process.folder / self._name).open("x+b") as file:
            file.truncate(size)
            self.block = memoryview(mmap.mmap(file.fileno(), size))
        self._process.ask("block", name=self._name)
        if before:
            (self._process.folder / before).unlink()


def names(program: Program) -> dict[str, str]:
    """What a program's blob files are called, by their path in the text: their contents' digest."""
    return {
        path: f"blob-{digest() if (digest := program.digests.get(path)) else buffer_digest(data)}"
        for path, data in program.weights.items()
    }
