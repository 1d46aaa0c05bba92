"""What a model keeps on disk for the next process: its packed weights, and compiled programs.

Weights are kept by the identity of the checkpoint's files: names, sizes, times of change.  Their
bytes are kept only where reading them again would cost a computation, as quantised ones do; of
others the digests alone, which are the identity of a program's weights.  A program is kept by all
that its text depends on, and the digest of its weights: change one weight, and only the programs
that read its file are compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orion_ane.ane.targets import Target
from orion_ane.artefacts.atomic import write_file
from orion_ane.artefacts.folder import read_bounded
from orion_ane.artefacts.manifest import BlobFile, Entry, read_entry
from orion_ane.errors import MilError, OrionError
from orion_ane.generate.kept_weights import (
    DOCUMENT,
    document_of,
    files_of,
    knowing,
    read_weights,
    write_document,
    write_weights,
)
from orion_ane.generate.packing import Packed
from orion_ane.mil import Program, WeightFile
from orion_ane.mil.lex import MAX_TEXT
from orion_ane.models.weights import Checkpoint
from orion_ane.runtime.disk_cache import DiskCache, key_of, tool_identity

TEXT = "model.mil"
PACKING = ("generate", "mil", "models", "types.py")
"""What of this package packed weights depend on."""
PLAIN = ("fp32", "fp16", "bf16")
"""How checkpoints store weights that are read without a computation worth keeping."""


def identity_of(origin: Path) -> str:
    """The identity of a checkpoint's files, which changes when one of them is written to."""
    files = [origin] if origin.is_file() else sorted(f for f in origin.iterdir() if f.is_file())
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        digest.update(f"{file.resolve()}\0{numbers}\0{status.st_ctime_ns}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Kept:
    """A model's place in the cache.

    Attributes:
        disk: the cache.
        model: all that its programs depend on but their weights, sizes and target.
    """

    disk: DiskCache
    model: str

    def program(
        self,
        sizes: tuple[object, ...],
        target: Target | None,
        file: WeightFile,
        build: Callable[[], tuple[Program, int]],
    ) -> tuple[Program, int, bool]:
        """A program, the bytes of weights that a run of it reads, and whether it was kept."""
        layout = hashlib.sha256(repr((file.path, *file.offsets.items())).encode()).hexdigest()
        parts = (self.model, repr(sizes), _identity(target), layout, file.digest)
        key = key_of(tool_identity(), "program", *parts)
        found = self._find(key, lambda folder: _read_program(folder, file))
        if found is not None:
            return (*found, True)
        program, reads = build()
        entry = _entry(program, file)
        document = {"program": entry.document(), "reads": reads}

        def fill(folder: Path) -> None:
            write_file(folder / TEXT, program.text.encode(), flush=False)
            write_document(folder, document)

        self.disk.keep(key, len(program.text), fill)
        return program, reads, False

    def weights(
        self,
        checkpoint: Checkpoint,
        build: Callable[[], tuple[Packed, tuple[str, ...]]],
        *,
        is_plain: bool = False,
    ) -> tuple[Packed, tuple[str, ...]]:
        """A model's packed weights, and what a user should know of the loading.

        `is_plain` weights are not worth keeping, however the checkpoint stores them.
        """
        origin = Path(checkpoint.origin)
        if not origin.exists():
            return build()
        before = identity_of(origin)
        key = key_of(tool_identity(*PACKING), "weights", self.model, before)
        if is_plain or checkpoint.stored in PLAIN:
            return self._digested(key, build)
        found = self._find(key, read_weights)
        if found is not None:
            return found
        weights, notes = build()
        if identity_of(origin) == before:  # else it was written to meanwhile
            size = sum(len(file.data) for _, file in files_of(weights))
            self.disk.keep(key, size, lambda folder: write_weights(folder, weights, notes))
        return weights, notes

    def _digested(
        self, key: str, build: Callable[[], tuple[Packed, tuple[str, ...]]]
    ) -> tuple[Packed, tuple[str, ...]]:
        """Weights packed anew, whose digests were kept."""
        weights, notes = build()
        files = dict(files_of(weights))
        digests = self._find(key, lambda folder: _read_digests(folder, files))
        if digests is None:
            digests = {name: file.digest for name, file in files.items()}
            document = {"digests": digests}
            self.disk.keep(key, 0, lambda folder: write_document(folder, document))
        for name, file in files.items():
            knowing(file, digests[name])
        return weights, notes

    def _find(self, key: str, read: Callable[[Path], Any]) -> Any:
        """What an entry holds; None where there is none, or it is damaged and now dropped."""
        folder = self.disk.find(key)
        if folder is None:
            return None
        try:
            return read(folder)
        except (OrionError, OSError) as error:
            self.disk.drop(key, error)
            return None


def _identity(target: Target | None) -> str:
    """All of a target, in an order of its own."""
    if target is None:
        return "none"
    return repr((replace(target, limits=frozenset()), sorted(target.limits)))


def _entry(program: Program, file: WeightFile) -> Entry:
    files = tuple(
        BlobFile(path, memoryview(data).nbytes, file.digest)
        for path, data in program.weights.items()
    )
    size = sum(blob.bytes for blob in files)
    return Entry(
        "program",
        program.code_key,
        program.weights_key,
        0,
        size,
        files,
        program.inputs,
        program.outputs,
    )


def _read_program(folder: Path, file: WeightFile) -> tuple[Program, int]:
    document = document_of(folder)
    entry = read_entry(document.inner("program"))
    data = read_bounded(folder / TEXT, MAX_TEXT)
    if hashlib.sha256(data).hexdigest() != entry.code_key:
        raise MilError(str(folder / TEXT), "not the text that was kept")
    known = [(blob.path, blob.bytes, blob.digest) for blob in entry.files]
    if known not in ([], [(file.path, len(file.data), file.digest)]):
        raise MilError(str(folder / DOCUMENT), "names other weights", got=known)
    files, digests = {file.path: file.data}, {file.path: lambda: file.digest}
    if not known:
        files, digests = {}, {}
    program = Program(data.decode(), files, entry.inputs, entry.outputs, digests)
    return program, document.size("reads")


def _read_digests(folder: Path, files: Mapping[str, WeightFile]) -> dict[str, str]:
    found = document_of(folder).inner("digests")
    return {name: found.digest(name) for name in files}
