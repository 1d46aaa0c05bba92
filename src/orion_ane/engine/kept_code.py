"""The machine code of kernels on disk, for processes that then need neither numba nor LLVM.

numba has a cache of its own, which only it can read.  What is kept here is what lies in that: a
kernel's object file, beside all that it depends on.  Where there is none, or not of this processor,
of these versions and of these very sources, numba loads or compiles the kernel as ever.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from orion_ane.engine import processor
from orion_ane.engine.machine_code import UnlinkableError, linked

LAYOUT = "2"
MAX_BYTES = 1 << 24
_ENGINE = Path(__file__).parent
_SOURCES = ("jit.py", "machine_code.py", "processor.py", "lanes.py", "plan/*.py")
_OF_FOLDERS = "NUMBA_CACHE_DIR"
_NO_CODE = (_OF_FOLDERS, "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER")
"""Settings of numba that no code depends on."""
_DIGEST = hashlib.sha256().digest_size

_log = logging.getLogger("orion_ane")


def find(name: str) -> int | None:
    """The address of a kernel's code, loaded from the disk; None where numba must load it."""
    if not _can_link():
        return None
    for folder in _folders():
        try:
            data = _read(folder, _file(name))
        except OSError:
            continue
        if data is None:
            continue
        try:
            return _loaded(name, data)
        except UnlinkableError as error:
            _log.debug("%s is left to numba: %s", name, error)
    return None


def keep(name: str, symbol: str, code: bytes) -> None:
    """Keep a kernel's object file, where that can be; `symbol` is the kernel in it."""
    if not _can_link():
        return
    head = json.dumps({"key": _key(), "name": name, "symbol": symbol}).encode()
    body = len(head).to_bytes(4, "little") + head + code
    data = hashlib.sha256(body).digest() + body
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(0o775, parents=True, exist_ok=True)
            if _is_ours(folder.stat(), folder):
                _write(folder, _file(name), data)
                return


def _read(folder: Path, name: str) -> bytes | None:
    """What a file of a folder holds; None where others may have written it.

    Raises:
        OSError: there is none that can be read.
    """
    with ExitStack() as opened:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, at)
        # Opening a pipe waits for who writes to it, and a device may do anything.
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        opened.callback(os.close, file)
        found = os.fstat(file)
        if not _is_ours(os.fstat(at), folder) or not _is_ours(found, folder / name):
            return None
        if not stat.S_ISREG(found.st_mode):
            _log.debug("%s is no file", folder / name)
            return None
        with os.fdopen(os.dup(file), "rb") as whole:
            return whole.read(MAX_BYTES)


def _is_ours(found: os.stat_result, path: Path) -> bool:
    """Whether none but trusted users can have put code there.

    In a folder like /tmp anybody may make files, but not change or replace those of others.
    """
    is_shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_uid not in _owners():
        _warn(path, f"it belongs to user {found.st_uid}")
    elif found.st_mode & stat.S_IWOTH and not is_shared:
        _warn(path, "everybody may write to it")
    else:
        return True
    return False


def _owners() -> frozenset[int]:
    """Whose code is run: this user's, root's, and of who owns this very package."""
    return frozenset({os.geteuid(), 0, _ENGINE.stat().st_uid})


@cache
def _warn(path: Path, why: str) -> None:
    """Say once in a process what is left aside."""
    _log.warning("kept code in %s is not used: %s", path, why)


def _loaded(name: str, data: bytes) -> int:
    digest, body = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise UnlinkableError("the file is damaged")
    start = 4 + int.from_bytes(body[:4], "little")
    try:
        head = json.loads(body[4:start])
    except ValueError as error:
        raise UnlinkableError("its head is damaged") from error
    match head:
        case {"key": key, "name": of, "symbol": str(symbol)} if (key, of) == (_key(), name):
            return linked(body[start:], symbol)
    raise UnlinkableError("it is another kernel's, or of other sources, versions or settings")


def _write(folder: Path, name: str, data: bytes) -> None:
    """A file that is there whole or not at all."""
    handle, made = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(made).replace(folder / name)
    except OSError:
        Path(made).unlink(missing_ok=True)
        raise


def can_keep() -> bool:
    """Whether code can be kept here."""
    return _can_link() and any(map(_is_writable, _folders()))


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(0o775, parents=True, exist_ok=True)
        return os.access(folder, os.W_OK | os.X_OK) and _is_ours(folder.stat(), folder)
    except OSError:
        return False


def _can_link() -> bool:
    return sys.platform == "linux" and os.uname().machine == "x86_64"


def _file(name: str) -> str:
    """The name of a kernel's file: each kind of processor has its own, since they share homes."""
    return f"{name}.{hashlib.sha256(processor.identity().encode()).hexdigest()[:12]}.code"


def _folders() -> list[Path]:
    """Where code may lie, as numba has it: where the user says, else by the sources or at home."""
    if chosen := os.environ.get(_OF_FOLDERS):
        return [Path(chosen) / "orion-ane"]
    found = [_ENGINE / "__pycache__"]
    with suppress(RuntimeError):  # no home
        user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        found.append(user / "orion-ane" / "code")
    return found


@cache
def _key() -> str:
    """All that the code of any kernel depends on."""
    settings = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith("NUMBA_") and name not in _NO_CODE
    )
    versions = [version(name) for name in ("numba", "llvmlite", "numpy")]
    parts = (LAYOUT, sys.version, versions, settings, processor.identity())
    digest = hashlib.sha256(repr(parts).encode())
    for pattern in _SOURCES:
        for file in sorted(_ENGINE.glob(pattern)):
            digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()
