"""The framework's folders, which several processes may use at once.

A folder is named by what is compiled in it, so that two processes with the same program have one
between them.  Beside it lies a file with a line for each worker that uses it: the folder goes with
the last of them.  A worker is told apart by the folder that it shares with the one who asks, and is
gone when that is; its list of folders is written before they are, so that whoever ends it, whenever
that was, knows all that it may have left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIST = "directories"
"""In a worker's own folder: the framework's folders that it uses or has used."""
SUFFIX = ".orion"


def claim(folder: Path, worker: Path) -> None:
    """Note that a worker is about to use one of the framework's folders.

    Args:
        folder: the framework's.
        worker: the worker's own.
    """
    with (worker / LIST).open("a") as file:
        file.write(f"{folder}\n")
    with alone(folder) as users:
        _write(users, {*_read(users), str(worker)})


def release(folder: Path, worker: Path) -> None:
    """Note that a worker does not use it any more; it is removed with its last user."""
    # Where its own folder has gone, as a temporary one of a test may, there is nothing to remove.
    with suppress(FileNotFoundError), alone(folder) as users:
        left = {line for line in _read(users) - {str(worker)} if Path(line).is_dir()}
        _write(users, left)
        if not left:
            shutil.rmtree(folder, ignore_errors=True)
            beside(folder).unlink()


def release_all(worker: Path) -> None:
    """Release whatever a worker has used that is gone."""
    listed = worker / LIST
    for line in dict.fromkeys(listed.read_text().splitlines() if listed.is_file() else ()):
        release(Path(line), worker)


@contextmanager
def alone(folder: Path) -> Iterator[int]:
    """No other process reads, writes or removes the folder meanwhile; gives the file beside it.

    Raises:
        FileNotFoundError: there is no place for the folder.
    """
    while True:
        users = os.open(beside(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(users, fcntl.LOCK_EX)
            if _is_still(users, beside(folder)):
                yield users
                return
        finally:
            os.close(users)


def beside(folder: Path) -> Path:
    """The file that names a folder's users."""
    return folder.with_name(folder.name + SUFFIX)


def _is_still(opened: int, path: Path) -> bool:
    """Whether a file was not removed while its lock was waited for."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(opened), found)


def _read(users: int) -> set[str]:
    return set(os.pread(users, os.fstat(users).st_size, 0).decode().splitlines())


def _write(users: int, lines: set[str]) -> None:
    os.ftruncate(users, 0)
    os.pwrite(users, "".join(f"{line}\n" for line in sorted(lines)).encode(), 0)
