"""Files whose numbers are read later than their headers, and must be the same by then."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orion_ane.errors import CheckpointError


@dataclass(frozen=True)
class Unchanged:
    """A file as it was when it was opened.

    A file that was removed or replaced stays as it was to who has mapped it; one that was written
    to does not, and to read behind its end would end the process.
    """

    path: Path
    state: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Unchanged:
        """The file as it is now.

        Raises:
            OSError: there is none.
        """
        return cls(path, _state(path.stat()))

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.state[2]

    def check(self) -> None:
        """Refuse a file that was written to since, as far as its size and times tell.

        Raises:
            CheckpointError: it was.
        """
        try:
            now = _state(self.path.stat())
        except OSError:
            return  # removed: what is mapped is as it was
        if now[:2] == self.state[:2] and now != self.state:
            raise CheckpointError(
                str(self.path),
                "the file was changed after it was opened",
                hint="load the model again, once the file is whole",
            )


def _state(found: os.stat_result) -> tuple[int, ...]:
    """Which file it is, then what tells that it was written to."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
