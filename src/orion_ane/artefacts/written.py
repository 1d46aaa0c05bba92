"""What a command may write over: what it wrote itself, and never what it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from orion_ane.artefacts.atomic import write_file
from orion_ane.errors import ConfigError

MARK = ".orion-ane"
"""A list of what was written into a folder, a name a line; hidden: other readers have no use for
it."""


def mark(folder: Path) -> None:
    """List the files of a folder that was just written."""
    names = sorted(file.name for file in folder.iterdir())
    write_file(folder / MARK, "".join(f"{name}\n" for name in names).encode())


def own_names(folder: Path) -> frozenset[str]:
    """The names in a folder that this package wrote; none where anything else is there."""
    try:
        names = frozenset((folder / MARK).read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return frozenset()
    return names if {file.name for file in folder.iterdir()} <= {MARK, *names} else frozenset()


def want_apart(option: str, out: Path, reads: Iterable[str | Path]) -> None:
    """Refuse a place that is, or holds, what the same command reads.

    Args:
        option: what the place was asked for by.
        out: the file or folder to write.
        reads: files and folders; what is not there is read by nobody.

    Raises:
        ConfigError: it would be lost.
    """
    if not out.exists():
        return
    for read in map(Path, reads):
        holders = (*Path(os.path.normpath(read.absolute())).parents, *read.resolve().parents)
        if read.exists() and any(out.samefile(one) for one in (read, *holders)):
            what = "is, or holds, what this command reads"
            raise ConfigError(option, what, got=out, hint="give another place")


def want_file(option: str, path: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    """Refuse a file that cannot be written, or has something else than what goes there.

    Args:
        option: what it was asked for by.
        path: the file.
        is_ours: whether a file has what this option writes.
        what: that, for people.

    Raises:
        ConfigError: there is no folder for it, or something else in its place.
    """
    if not path.parent.is_dir():
        raise ConfigError(option, "no such folder", got=path.parent)
    is_empty = path.is_file() and not path.stat().st_size
    if (path.exists() or path.is_symlink()) and not is_empty and not is_ours(path):
        hint = "give another name, or move what is there away"
        raise ConfigError(option, f"is there already, and is no {what}", got=path, hint=hint)
