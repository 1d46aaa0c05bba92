"""Saves of a checkpoint, killed at every instant or cut off by a full disk; run as a script.

It forks before any thread exists, which a test's own process could not.  Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.host.adamw import Moments
from orion_ane.models.config import LlamaConfig
from orion_ane.train import tensor_file
from orion_ane.train.checkpoint import Checkpoints, Run
from orion_ane.train.state import State

CONFIG = LlamaConfig(
    vocab=8, context=8, dim=4, layers=1, heads=1, kv_heads=1, head_dim=4, hidden=4, tied=True
)
WATCHED = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}


def run_at(step: int) -> Run:
    array = np.full((5, 3), step, np.float32)
    state = State({"w": array}, {"w": Moments(array + 0.25, array + 0.5)}, step=step)
    return Run(CONFIG, state, cursor={"row": 7 * step}, rng={"bits": 2**100 + step})


class Clock:
    """Kills this process, before its n-th action on files."""

    def __init__(self, left: int) -> None:
        self.left = left

    def tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Ticking:
    """A file, each write of which is an instant."""

    def __init__(self, file, clock: Clock) -> None:
        self.file, self.clock = file, clock

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> int:
        self.clock.tick()
        return self.file.write(data)

    def fileno(self) -> int:
        return self.file.fileno()


def watched(clock: Clock) -> None:
    """From now on, every action on files is an instant."""
    opened, fsync = Path.open, os.fsync

    def ticking_open(self, mode="r", *args, **options):
        file = opened(self, mode, *args, **options)
        return Ticking(file, clock) if "x" in mode else file

    def ticking_fsync(handle: int) -> None:
        clock.tick()
        fsync(handle)

    def hook(event: str, _: object) -> None:
        if event in WATCHED:
            clock.tick()

    Path.open, os.fsync = ticking_open, ticking_fsync
    tensor_file.PIECE = 64
    sys.addaudithook(hook)


def limited(size: int) -> None:
    """From now on, no file may be longer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def in_child(folder: Path, prepare) -> int:
    """What a child that saves step 3 ended with: 0 saved, 1 refused, -9 killed."""
    child = os.fork()
    if child == 0:
        ended = 3
        try:
            prepare()
            Checkpoints(folder, keep=2).save(run_at(3))
            ended = 0
        except CheckpointError as error:
            ended = 1 if "the checkpoint before it is as it was" in str(error) else 2
        finally:
            os._exit(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_whole(folder: Path, ended: int) -> bool:
    """Whether the newest is good and as it was saved, the next save works, and no half stays."""
    kept = Checkpoints(folder)
    found = kept.newest()
    if kept.notes:  # one under a checkpoint's name is damaged
        return False
    if found is None or found.state.step not in ((3,) if ended == 0 else (2, 3)):
        return False
    want = run_at(found.state.step)
    same = np.array_equal(found.state.masters["w"], want.state.masters["w"])
    same &= np.array_equal(found.state.moments["w"].square, want.state.moments["w"].square)
    same &= found.rng == want.rng and found.cursor == want.cursor
    Checkpoints(folder, keep=2).save(run_at(4))
    names = sorted(path.name for path in folder.iterdir())
    return bool(same) and names[-1] == "step-00000004" and len(names) == 2


def main() -> None:
    root = Path(sys.argv[1])
    start, work = root / "start", root / "work"
    for step in (1, 2):
        Checkpoints(start, keep=2).save(run_at(step))
    ends: dict[str, list[int]] = {"killed": [], "full": []}
    broken = []
    trials = [("killed", n) for n in range(200)] + [("full", n) for n in range(0, 4000, 101)]
    for kind, n in trials:
        if kind == "killed" and 0 in ends["killed"]:
            continue  # there are no more instants
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(start, work)
        ended = in_child(
            work, partial(watched, Clock(n)) if kind == "killed" else partial(limited, n)
        )
        ends[kind].append(ended)
        if not is_whole(work, ended):
            broken.append(f"{kind} {n}")
    print(json.dumps({**ends, "broken": broken}))


if __name__ == "__main__":
    main()
