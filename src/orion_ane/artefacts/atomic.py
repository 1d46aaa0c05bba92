"""Files and folders that are there whole or not at all: written beside, flushed, renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orion_ane.errors import ConfigError
from orion_ane.mil.program import Buffer


def write_file(path: Path, data: Buffer, *, flush: bool = True) -> None:
    """Write a file that must not be there.

    Args:
        path: the file.
        data: its bytes.
        flush: whether they are on the disk when this returns; else a fall of power may lose them.
    """
    with path.open("xb") as file:
        file.write(data)
        if flush:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def folder_beside(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill, which becomes `path` where the block ends well, else goes without trace.

    Args:
        path: what it becomes; folders above it are made.
        replace: whether what is there may go; an empty folder may anyway.

    Raises:
        ConfigError: something is there.
    """
    _want_room(path, replace=replace)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        made.chmod(0o777 & ~_umask())
        yield made
        _flush_folders(made)
        _want_room(path, replace=replace)
        if replace and path.is_dir() and any(path.iterdir()):
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


def _want_room(path: Path, *, replace: bool) -> None:
    if path.is_dir() and (replace or not any(path.iterdir())):
        return
    if path.exists() or path.is_symlink():
        hint = "give another folder, or allow to replace it"
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
