"""What this package wrote itself, told by a list beside it: nothing else is ever replaced."""

from __future__ import annotations

from pathlib import Path

from orion_ane.artefacts.atomic import write_file

MARK = ".orion-ane"
"""The list, a name a line; hidden, since other readers have no use for it."""


def mark(folder: Path) -> None:
    """List the files of a folder that was just written."""
    names = sorted(file.name for file in folder.iterdir())
    write_file(folder / MARK, "".join(f"{name}\n" for name in names).encode())


def is_written(folder: Path) -> bool:
    """Whether a folder has what this package wrote there, and nothing else."""
    try:
        listed = (folder / MARK).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return {file.name for file in folder.iterdir()} <= {MARK, *listed}
