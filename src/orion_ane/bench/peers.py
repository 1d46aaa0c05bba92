"""Peers: scripts outside the package that do the same work, each in a process of its own.

A peer is started with one argument, the work as JSON.  It prints a line of JSON, either
`{"ready": "what it is"}` or `{"unavailable": "why"}`; then, for each line it reads, it works once
and prints the rates, by the names of our rows.  Between its turns it waits, and takes nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from orion_ane.bench.harness import Rates
from orion_ane.errors import BackendError, ConfigError

FOLDER = Path("bench") / "peers"


class PeerMissingError(BackendError):
    """A peer that cannot be had here, or not for this work."""


class Peer:
    """A running peer, which works when it is called.

    Attributes:
        name: what it was asked for by.
        what: what it says that it is.

    Raises:
        PeerMissingError: it cannot do the work here; the message says why.
        BackendError: it ended, or printed what is none of the protocol.
    """

    def __init__(self, script: Path, work: Mapping[str, Any]) -> None:
        self.name = script.stem
        self._process = subprocess.Popen(  # noqa: S603 - the script that the user names
            [sys.executable, str(script), json.dumps(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            self.what = self._introduced()
        except BaseException:
            self.close()
            raise

    def _introduced(self) -> str:
        first = self._read()
        if "unavailable" in first:
            raise PeerMissingError(f"peer {self.name}", "not to be had", got=first["unavailable"])
        return str(first.get("ready", self.name))

    def __call__(self) -> Rates:
        """One run's rates."""
        assert self._process.stdin is not None  # it was asked for
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise BackendError(f"peer {self.name}", "ended") from error
        found = self._read()
        rates = found.values()
        if not rates or not all(isinstance(x, float | int) and x > 0 for x in rates):
            raise BackendError(f"peer {self.name}", "gave no rates", got=found)
        return found

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # it was asked for
        line = self._process.stdout.readline()
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            got = f"{line.strip()!r:.200}" if line else f"its end, status {self._process.wait()}"
            raise BackendError(f"peer {self.name}", "no line of JSON", got=got)
        return found

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Guarded:
    """A peer that may fail without ending the benchmark: it is named, and asked no more."""

    def __init__(self, peer: Peer, notes: list[str]) -> None:
        self.name, self._peer, self._notes = peer.name, peer, notes
        self._failed = False

    def __call__(self) -> Rates:
        """One run's rates; none from the run on in which it failed."""
        if self._failed:
            return {}
        try:
            return self._peer()
        except BackendError as error:
            self._failed = True
            self._notes.append(str(error))
            return {}


@contextmanager
def started(
    scripts: Iterable[Path], work: Mapping[str, Any]
) -> Iterator[tuple[list[Peer], list[str]]]:
    """The peers that can be had, running, and what to say of those that cannot."""
    with ExitStack() as stack:
        peers: list[Peer] = []
        notes: list[str] = []
        for script in scripts:
            try:
                peers.append(stack.enter_context(Peer(script, work)))
            except BackendError as error:  # it cannot be had, or ends at once
                notes.append(str(error))
        yield peers, notes


def chosen(asked: Iterable[str], usual: Iterable[str]) -> tuple[list[Path], list[str]]:
    """The scripts of the peers asked for, else of the usual ones; a note of those not here.

    Raises:
        ConfigError: one that was asked for is not here.
    """
    if names := list(asked):
        return [find(name) for name in names], []
    scripts = {name: _script(name) for name in usual}
    notes = []
    if absent := [name for name, script in scripts.items() if script is None]:
        where = f"scripts in {FOLDER} of the source's folder: run it there"
        notes = [f"peers that are not here: {', '.join(absent)}; they are {where}"]
    return [script for script in scripts.values() if script is not None], notes


def _folders() -> list[Path]:
    return [FOLDER, Path(__file__).resolve().parents[3] / FOLDER]


def _script(name: str) -> Path | None:
    if name.endswith(".py") and Path(name).is_file():
        return Path(name)
    files = (folder / f"{name}.py" for folder in _folders())
    return next((file for file in files if file.is_file()), None)


def find(name: str) -> Path:
    """The script of a peer: a file, or a name in `bench/peers` here or beside the package's source.

    Raises:
        ConfigError: there is none.
    """
    if (script := _script(name)) is not None:
        return script
    known = sorted({p.stem for folder in _folders() for p in folder.glob("[a-z]*.py")})
    if known:
        raise ConfigError("--against", "no such peer", got=name, want=", ".join(known))
    raise ConfigError(
        "--against",
        f"no folder {FOLDER} here, and so no peers",
        got=name,
        hint="names are those of scripts in the source's; run it there, or give a script's path",
    )
