"""Files and folders that are there whole or not at all: written beside, flushed, renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orion_ane.errors import ConfigError
from orion_ane.mil.program import Buffer


@contextmanager
def naming(place: Path | str) -> Iterator[None]:
    """Have an error of the system say where it was: of a write it does not by itself.

    Raises:
        OSError: one of the block's, with a file's name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        why = error.strerror or str(error)
        raise OSError(error.errno, why, str(place)) from error


def write_file(path: Path, data: Buffer, *, flush: bool = True) -> None:
    """Write a file that must not be there.

    Args:
        path: the file.
        data: its bytes.
        flush: whether they are on the disk when this returns; else a fall of power may lose them.

    Raises:
        OSError: it is there, or cannot be written; with its name.
    """
    with naming(path), path.open("xb") as file:
        file.write(data)
        if flush:
            file.flush()
            os.fsync(file.fileno())


def _nothing(_: Path) -> bool:
    return False


@contextmanager
def folder_beside(
    path: Path, *, replace: bool = False, is_ours: Callable[[Path], bool] = _nothing
) -> Iterator[Path]:
    """A folder to fill, which becomes `path` where the block ends well, else goes without trace.

    Args:
        path: what it becomes; folders above it are made.
        replace: whether a folder of ours that is there may go; an empty one may anyway.
        is_ours: whether a folder holds what the caller writes, and nothing else.

    Raises:
        ConfigError: something is there.
    """
    want_room(path, is_ours, replace=replace)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        made.chmod(0o777 & ~_umask())
        yield made
        _flush_folders(made)
        want_room(path, is_ours, replace=replace)
        if path.is_dir() and any(path.iterdir()):
            _exchange(made, path)
        else:
            made.rename(path)
        flush_folder(path.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _exchange(made: Path, path: Path) -> None:
    """Put one folder in another's place; between the two renames there is none."""
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    path.rename(old)
    try:
        made.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def want_room(path: Path, is_ours: Callable[[Path], bool], *, replace: bool) -> None:
    """Refuse a place that `folder_beside` would.

    Raises:
        ConfigError: something is there, or who works is.
    """
    is_real = path.is_dir() and not path.is_symlink()
    if is_real and Path.cwd().is_relative_to(path.resolve()):
        hint = "give another folder, or go to one that stays"
        raise ConfigError(str(path), "is the working folder, or holds it", hint=hint)
    may_go = is_real and is_ours(path)
    if is_real and (not any(path.iterdir()) or (may_go and replace)):
        return
    if path.exists() or path.is_symlink():
        hint = "give another folder; only what this command wrote can be replaced"
        if may_go:
            hint = "give another folder, or --replace (in Python replace=True)"
        raise ConfigError(str(path), "is there already", hint=hint)


def _flush_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        flush_folder(Path(folder))


def flush_folder(path: Path) -> None:
    """Have the names in a folder on the disk, where the system can say so of a folder."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """The bits that new files go without; the only way to ask sets it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
