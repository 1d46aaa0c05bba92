"""Packed weights as an entry of the cache: a file for each weight file, and a document of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orion_ane.artefacts.atomic import write_file
from orion_ane.artefacts.folder import mapped, read_bounded
from orion_ane.artefacts.manifest import Reader, read_type, spelled
from orion_ane.errors import MilError
from orion_ane.generate.packing import Packed
from orion_ane.host.pages import forget
from orion_ane.mil import WeightFile, pack
from orion_ane.mil.blob import ALIGNMENT
from orion_ane.mil.program import Buffer
from orion_ane.models.weights.quantised import Quantised
from orion_ane.types import Array, TensorType

DOCUMENT, HOST = "entry.json", "host"
MAX_DOCUMENT = 1 << 26
MAX_ITEMS = 1 << 20
COPIED = 1 << 22  # bytes that are copied at a time, and then not kept where they lie


def files_of(weights: Packed) -> list[tuple[str, WeightFile]]:
    """The weight files of a model, each with a name."""
    bodies = [(f"body-{start}", file) for start, file in weights.bodies.items()]
    return [*bodies, ("head", weights.head)]


def write_weights(folder: Path, weights: Packed, notes: tuple[str, ...]) -> None:
    """Write all weight files, and what the host looks up where that is not in the head's file."""
    head = np.frombuffer(weights.head.data, np.uint8)
    host = {n: rows for n, rows in weights.host.items() if not isinstance(rows, Quantised)}
    assert len(host) == len(weights.host)  # codes are not kept: to copy them is no computation
    apart = {n: array for n, array in host.items() if not np.may_share_memory(array, head)}
    files = [*files_of(weights), *([(HOST, pack(apart))] if apart else [])]
    for name, file in files:
        write_file(folder / f"{name}.bin", file.data, flush=False)
    document = {
        "slices": [{"start": layers.start, "stop": layers.stop} for layers in weights.slices],
        "files": {name: _described(file) for name, file in files},
        "host": [
            {"name": name, "apart": name in apart, "shape": list(array.shape)}
            for name, array in host.items()
        ],
        "notes": [{"text": note} for note in notes],
    }
    write_document(folder, document)


def read_weights(folder: Path) -> tuple[Packed, tuple[str, ...]]:
    """The weights of an entry, and the notes beside them.

    Raises:
        MilError: the entry is damaged.
        OSError: a file of it cannot be read.
    """
    document = document_of(folder)
    described = document.inner("files")
    slices = [
        range(one.size("start"), one.size("stop")) for one in document.listed("slices", MAX_ITEMS)
    ]
    bodies = {layers.start: _read(folder, described, f"body-{layers.start}") for layers in slices}
    head = _read(folder, described, "head")
    apart = _read(folder, described, HOST) if described.get(HOST) is not None else None
    host: dict[str, Array] = {}
    for one in document.listed("host", MAX_ITEMS):
        name, is_apart = one.of("name", str), one.of("apart", bool)
        file = apart if is_apart else head
        if file is None or name not in file.offsets:
            raise MilError(one.where, "not in its file", got=name)
        host[name] = file.array(name).reshape(one.of("shape", list))
    notes = tuple(one.of("text", str) for one in document.listed("notes", MAX_ITEMS))
    return Packed(slices, bodies, head, host), notes


def _described(file: WeightFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "bytes": len(file.data),
        "sums": sums(file.data),
        "digest": file.digest,
        "weights": [
            {"label": label, "offset": offset, "type": spelled(file.types[label])}
            for label, offset in file.offsets.items()
        ],
    }


def _read(folder: Path, files: Reader, name: str) -> WeightFile:
    described = files.inner(name)
    data = _in_memory(mapped(folder / f"{name}.bin", described.size("bytes"))[0])
    if sums(data) != described.of("sums", str):
        raise MilError(str(folder / f"{name}.bin"), "not the bytes that were kept")
    offsets: dict[str, int] = {}
    types: dict[str, TensorType] = {}
    for one in described.listed("weights", MAX_ITEMS):
        label = one.of("label", str)
        offsets[label], types[label] = one.size("offset"), read_type(one.inner("type"))
    file = WeightFile(described.of("path", str), data, offsets, types)
    return knowing(file, described.digest("digest"))


def _in_memory(data: memoryview) -> memoryview:
    """A copy in memory, where numpy asks for large pages: it is read half as fast where it lies."""
    held = np.empty(len(data) + ALIGNMENT, np.uint8)
    start = -held.ctypes.data % ALIGNMENT
    held = held[start : start + len(data)]
    stored = np.frombuffer(data, np.uint8)
    for at in range(0, len(stored), COPIED):
        part = stored[at : at + COPIED]
        held[at : at + COPIED] = part
        forget(part)
    return held.data.toreadonly()


def sums(data: Buffer) -> str:
    """What damage on a disk would change, at the speed of memory; no defence against malice."""
    view = memoryview(data)
    whole = len(view) // 8 * 8
    words = np.frombuffer(view[:whole], "<u8")
    total, mixed = np.add.reduce(words), np.bitwise_xor.reduce(words)
    return f"{int(total):016x}{int(mixed):016x}{view[whole:].hex()}"


def write_document(folder: Path, document: Mapping[str, Any]) -> None:
    """Write an entry's document, behind a line with its digest."""
    data = json.dumps(document).encode()
    line = hashlib.sha256(data).hexdigest().encode() + b"\n"
    write_file(folder / DOCUMENT, line + data, flush=False)


def document_of(folder: Path) -> Reader:
    """The document of an entry.

    Raises:
        MilError: it is not what was written.
        OSError: it cannot be read.
    """
    file = folder / DOCUMENT
    line, _, data = read_bounded(file, MAX_DOCUMENT).partition(b"\n")
    if line != hashlib.sha256(data).hexdigest().encode():
        raise MilError(str(file), "not the document that was kept")
    return Reader(str(file), json.loads(data))


def knowing(file: WeightFile, digest: str) -> WeightFile:
    """The file, its digest known without a look at the bytes."""
    file.__dict__["digest"] = digest  # where the cached property keeps what it has reckoned
    return file
