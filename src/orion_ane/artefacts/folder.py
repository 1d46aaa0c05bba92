"""A compiled folder: each program in a folder of its own, as a device takes it, and a manifest.

    FOLDER/manifest.json
    FOLDER/NAME/model.mil
    FOLDER/NAME/weights/weight.bin

A blob file that several programs share is one file under several names (hard links) where the
disk can do that, else a copy each: every program's folder is whole by itself.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from orion_ane.artefacts.atomic import folder_beside, write_file
from orion_ane.artefacts.manifest import (
    MAX_BYTES,
    BlobFile,
    Entry,
    Manifest,
    by_name,
    check_name,
    parse_manifest,
    parts_of,
)
from orion_ane.errors import MilError
from orion_ane.mil.lex import MAX_TEXT
from orion_ane.mil.program import Buffer, Program, buffer_digest

MANIFEST = "manifest.json"
TEXT = "model.mil"
_COMPUTES = re.compile(r"^[ \t]+[^=\n]+ = (?!const\b)\w+\(", re.MULTILINE)


def write_folder(
    path: Path,
    programs: Iterable[tuple[str, Program]],
    *,
    target: str | None = None,
    replace: bool = False,
) -> Manifest:
    """Write programs, each under its name, and the manifest; the folder is there whole or not.

    Args:
        path: the folder.
        programs: at least one; they are written as they come, and none is kept.
        target: whose limits they keep.
        replace: whether a compiled folder that is there already may go; nothing else may.

    Raises:
        ConfigError: something is there.
        MilError: no program, or two of one name, or a name that no folder can have.
    """
    entries: dict[str, Entry] = {}
    stored: dict[tuple[str, int], Path] = {}
    with folder_beside(path, replace=replace, is_ours=_is_compiled) as made:
        for name, program in programs:
            check_name(str(path), name)
            if name.lower() in entries:
                raise MilError(str(path), "two programs of one name", got=name)
            entries[name.lower()] = _write_program(made / name, name, program, stored)
        if not entries:
            raise MilError(str(path), "no program to write")
        manifest = Manifest(f"orion-ane {version('orion-ane')}", target, tuple(entries.values()))
        write_file(made / MANIFEST, manifest.text().encode())
    return manifest


def _is_compiled(path: Path) -> bool:
    """Whether a folder holds what `write_folder` writes, and nothing else."""
    try:
        folder = Folder(path)
    except (MilError, OSError):
        return False
    known = {path / MANIFEST}
    for entry in folder.manifest.programs:
        places = [path.joinpath(entry.name, *parts_of(entry.name, f.path)) for f in entry.files]
        known |= {folder.text_path(entry.name), *places}
    return {file for file in path.rglob("*") if not file.is_dir()} <= known


def _write_program(
    folder: Path, name: str, program: Program, stored: dict[tuple[str, int], Path]
) -> Entry:
    folder.mkdir()
    write_file(folder / TEXT, program.text.encode())
    files = tuple(_file(program, blob) for blob in sorted(program.weights))
    for file in files:
        target = folder.joinpath(*parts_of(name, file.path))
        target.parent.mkdir(parents=True, exist_ok=True)
        first = stored.setdefault((file.digest, file.bytes), target)
        if first is target or not _linked(first, target):
            write_file(target, program.weights[file.path])
    keyed = _with_digests(program, files)
    return Entry(
        name,
        keyed.code_key,
        keyed.weights_key,
        sum(1 for _ in _COMPUTES.finditer(program.text)),
        program.weight_bytes,
        files,
        program.inputs,
        program.outputs,
    )


def _file(program: Program, path: str) -> BlobFile:
    data, shared = program.weights[path], program.digests.get(path)
    return BlobFile(path, memoryview(data).nbytes, shared() if shared else buffer_digest(data))


def _with_digests(program: Program, files: Iterable[BlobFile]) -> Program:
    return replace(program, digests={file.path: partial(str, file.digest) for file in files})


def _linked(first: Path, second: Path) -> bool:
    """Whether a file got a second name; not every disk can do that."""
    try:
        os.link(first, second)
    except (OSError, NotImplementedError):
        return False
    return True


def read_folder(path: Path) -> Folder:
    """The programs of a compiled folder by name; each is read when it is first asked for.

    Raises:
        MilError: the folder has no manifest, or one that is damaged or of a later version.
    """
    return Folder(path)


class Folder(Mapping[str, Program]):
    """The programs of a compiled folder, in the manifest's order, their blob files mapped.

    Attributes:
        path: the folder.
        manifest: what it says of itself.

    To ask for a program raises MilError where its files are missing or are not those that the
    manifest names.  Files must stay as they are while a program of them is in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = path / MANIFEST
        if not file.is_file():
            hint = "orion compile writes one"
            raise MilError(str(path), "not a compiled folder", want=f"a {MANIFEST}", hint=hint)
        self.manifest = parse_manifest(str(file), read_bounded(file, MAX_BYTES))
        self._entries = by_name(self.manifest)
        self._programs: dict[str, Program] = {}
        self._buffers: dict[str, Buffer] = {}  # by digest
        self._seen: dict[tuple[int, int], str] = {}  # digests by file

    def __getitem__(self, name: str) -> Program:
        if name not in self._programs:
            self._programs[name] = self._read(self._entries[name])
        return self._programs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def text_path(self, name: str) -> Path:
        """Where a program's text lies."""
        return self.path / name / TEXT

    def _read(self, entry: Entry) -> Program:
        file = self._inside(self.text_path(entry.name))
        data = read_bounded(file, MAX_TEXT)
        found = hashlib.sha256(data).hexdigest()
        if found != entry.code_key:
            raise MilError(
                str(file), "not the text of the manifest", got=found, want=entry.code_key
            )
        weights = {blob.path: self._blob(entry.name, blob) for blob in entry.files}
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise MilError(str(file), "not UTF-8", got=f"byte {error.start}") from None
        program = Program(text, weights, entry.inputs, entry.outputs)
        program = _with_digests(program, entry.files)
        if program.weights_key != entry.weights_key:
            where = f"{self.path / MANIFEST}: {entry.name}"
            raise MilError(where, "weights_key is not that of the files", got=entry.weights_key)
        return program

    def _blob(self, name: str, blob: BlobFile) -> Buffer:
        """The bytes of a blob file, the same object for the same bytes."""
        file = self._inside(self.path.joinpath(name, *parts_of(name, blob.path)))
        data, key = mapped(file, blob.bytes)
        if key not in self._seen:
            self._seen[key] = buffer_digest(data)
        if self._seen[key] != blob.digest:
            got = self._seen[key]
            raise MilError(str(file), "not the bytes of the manifest", got=got, want=blob.digest)
        return self._buffers.setdefault(blob.digest, data)

    def _inside(self, file: Path) -> Path:
        """The file, which must not be a link that leads out of the folder."""
        if not file.resolve().is_relative_to(self.path.resolve()):
            raise MilError(str(file), "leads out of the folder", got=file.resolve())
        if not file.is_file():
            raise MilError(str(file), "missing, though the manifest names it")
        return file


def read_bounded(file: Path, most: int) -> bytes:
    """The bytes of a file that is not larger than `most`."""
    with file.open("rb") as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise MilError(str(file), "too long", got=file.stat().st_size, want=f"at most {most} bytes")
    return data


def mapped(file: Path, size: int) -> tuple[memoryview, tuple[int, int]]:
    """A file's bytes as they lie on the disk, and which file it is.

    Raises:
        MilError: it is no file, or of another size.
        OSError: it cannot be opened.
    """
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            got = f"{status.st_size} bytes"
            raise MilError(str(file), "not the size of the manifest", got=got, want=f"{size} bytes")
        if not size:
            return memoryview(b""), (status.st_dev, status.st_ino)
        mapped = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ)
    return memoryview(mapped), (status.st_dev, status.st_ino)
