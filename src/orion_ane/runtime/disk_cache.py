"""Entries on disk by key, for other processes: whole or not there, bounded, the stalest dropped.

An entry is a folder of files under the cache's root, named by its key.  It is written beside and
renamed, so that a reader never sees half of one, and of two writers the second finds the entry
there and lets its own go.  What a key stands for says the caller; an entry never changes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import orion_ane
from orion_ane.artefacts.atomic import folder_beside
from orion_ane.errors import ConfigError

LAYOUT = "v1"
OFF = "off"
DEFAULT_BYTES = 8 << 30
"""The most that all entries take together; a quarter of it is the most that one may take."""
STALE_S = 3600.0
"""What was begun so long ago and never finished is left over."""

_log = logging.getLogger("orion_ane")


def cache_root() -> Path | None:
    """Where entries lie: ORION_CACHE, else `orion-ane` in the user's cache.

    None where it is off, or the user has no home.
    """
    chosen = os.environ.get("ORION_CACHE", "")
    if chosen.lower() == OFF:
        return None
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "orion-ane"
    try:
        return Path(os.path.expandvars(chosen or user)).expanduser()
    except RuntimeError:  # no home
        return None


def default_cache() -> DiskCache | None:
    """The user's cache, or None where there is none."""
    root = cache_root()
    return None if root is None else DiskCache(root)


@cache
def tool_identity(*parts: str) -> str:
    """The version of this package and of what computes for it, and of its very files.

    Args:
        parts: packages and modules whose files count: an edited source is another tool.  None are
            all.
    """
    versions = [f"{name} {version(name)}" for name in ("orion-ane", "numpy", "gguf")]
    digest = hashlib.sha256(f"{LAYOUT} {versions}".encode())
    root = Path(orion_ane.__file__).parent
    for file in sorted(root.rglob("*.py")):
        inner = file.relative_to(root)
        if parts and inner.parts[0] not in parts:
            continue
        status = file.stat()
        digest.update(f"\0{inner.as_posix()}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return digest.hexdigest()


@cache
def _warn_once(message: str) -> None:
    """Say what would be said again at each entry."""
    _log.warning(message)


def _is_there(folder: Path) -> bool:
    """Whether there is a folder; not where nobody may look."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def key_of(tool: str, *parts: str) -> str:
    """The key of an entry that depends on these parts and on the tool."""
    digest = hashlib.sha256()
    for part in (tool, *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass(frozen=True)
class DiskCache:
    """Entries under a root that any number of processes share.

    Attributes:
        root: the folder, made when something is first kept.
        most_bytes: what all entries may take together.
    """

    root: Path
    most_bytes: int = DEFAULT_BYTES

    def find(self, key: str) -> Path | None:
        """The folder of an entry, now the last used; None where there is none."""
        folder = self._folder(key)
        try:
            os.utime(folder)
        except OSError:
            return None
        return folder

    def keep(self, key: str, size: int, fill: Callable[[Path], None]) -> None:
        """Make an entry, where there is none and there is room; a failure costs a warning only.

        Args:
            key: from `key_of`.
            size: about how many bytes it will have.
            fill: writes its files into a folder.
        """
        folder = self._folder(key)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if size > self.most_bytes // 4 or shutil.disk_usage(self.root).free < 2 * size:
                return
            with folder_beside(folder) as made:
                fill(made)
        except (ConfigError, OSError) as error:
            if not _is_there(folder):  # else another process was faster
                _warn_once(f"the cache in {self.root} cannot be written: {error.args[-1]}")
        self._make_room(folder)

    def drop(self, key: str, why: object) -> None:
        """Remove an entry that is damaged, with a warning."""
        folder = self._folder(key)
        if _is_there(folder):  # else another process has done so, or made room
            _log.warning("a damaged entry of the cache is dropped: %s", why)
            self._remove(folder)

    def _folder(self, key: str) -> Path:
        return self.root / LAYOUT / key

    def _entries(self) -> list[Path]:
        """The folders of all entries; none where nobody may look."""
        try:
            return list(self._folder("").iterdir())
        except OSError:
            return []

    def _make_room(self, newest: Path) -> None:
        """Remove the longest unused until the rest is within the bound."""
        entries = []
        for folder in self._entries():
            try:
                used = folder.stat().st_mtime
                size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            except OSError:
                continue  # another process removed it
            if not folder.name.startswith("."):
                entries.append((folder != newest, -used, size, folder))
            elif time.time() - used > STALE_S:
                shutil.rmtree(folder, ignore_errors=True)
        total = 0
        for _, _, size, folder in sorted(entries):
            total += size
            if total > self.most_bytes:
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        """Take an entry away at once, then its files."""
        trash = folder.parent / f".trash.{os.getpid()}.{folder.name}"
        try:
            trash.mkdir(exist_ok=True)
            folder.rename(trash / folder.name)
        except OSError as error:
            if _is_there(folder):  # else another process was faster
                _log.warning("an entry of the cache cannot be removed: %s", error)
        shutil.rmtree(trash, ignore_errors=True)
