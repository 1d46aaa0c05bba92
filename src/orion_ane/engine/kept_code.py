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
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from orion_ane.engine import processor
from orion_ane.engine.machine_code import UnlinkableError, linked

LAYOUT = "1"
MAX_BYTES = 1 << 24
_ENGINE = Path(__file__).parent
_SOURCES = ("jit.py", "machine_code.py", "processor.py", "macs/vectors.py", "plan/*.py")
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
            file = (folder / _file(name)).open("rb")
        except OSError:
            continue
        with file:
            data = file.read(MAX_BYTES)
        try:
            return _loaded(data)
        except UnlinkableError as error:
            _log.debug("%s is left to numba: %s", name, error)
    return None


def keep(name: str, symbol: str, code: bytes) -> None:
    """Keep a kernel's object file, where that can be; `symbol` is the kernel in it."""
    if not _can_link():
        return
    head = json.dumps({"key": _key(), "symbol": symbol}).encode()
    body = len(head).to_bytes(4, "little") + head + code
    data = hashlib.sha256(body).digest() + body
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder, _file(name), data)
            return


def _loaded(data: bytes) -> int:
    digest, body = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise UnlinkableError("the file is damaged")
    start = 4 + int.from_bytes(body[:4], "little")
    head = json.loads(body[4:start])
    if head["key"] != _key():
        raise UnlinkableError("it is of other sources, versions or settings")
    return linked(body[start:], head["symbol"])


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
