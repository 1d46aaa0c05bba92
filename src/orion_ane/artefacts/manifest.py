"""The manifest of a compiled folder: which programs it has, under which names and identities."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from orion_ane.errors import MilError, ShapeError
from orion_ane.mil.program import Port
from orion_ane.types import DType, TensorType

FORMAT = "orion-programs"
VERSION = 1
ROOT = "@model_path"
MAX_BYTES = 1 << 26
MAX_PROGRAMS = 10_000
MAX_FILES = 1000
MAX_PORTS = 10_000

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


@dataclass(frozen=True)
class BlobFile:
    """A blob file of a program.

    Attributes:
        path: as the text has it, `@model_path/weights/weight.bin`.
        bytes: its size.
        digest: the identity of its bytes (blake2b, 32 bytes, in hex).
    """

    path: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class Entry:
    """A program of the folder, without its text and bytes.

    Attributes:
        name: of the program, and of its folder.
        code_key: the identity of its text; see `Program`.
        weights_key: the identity of its blob files.
        ops: how many statements compute something.
        weight_bytes: the size of all its blob files.
        files: the blob files.
        inputs: the ports in the text's order.
        outputs: likewise.
    """

    name: str
    code_key: str
    weights_key: str
    ops: int
    weight_bytes: int
    files: tuple[BlobFile, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def document(self) -> dict[str, Any]:
        """The entry as JSON has it."""
        return {
            "name": self.name,
            "code_key": self.code_key,
            "weights_key": self.weights_key,
            "ops": self.ops,
            "weight_bytes": self.weight_bytes,
            "files": [asdict(file) for file in self.files],
            "inputs": [_written(port) for port in self.inputs],
            "outputs": [_written(port) for port in self.outputs],
        }


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` holds.

    Attributes:
        tool: name and version of who wrote it.
        target: whose limits the programs keep; None where none was asked.
        programs: at least one, each with a name of its own.
    """

    tool: str
    target: str | None
    programs: tuple[Entry, ...]

    def text(self) -> str:
        """The manifest as a file has it."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "tool": self.tool,
            "target": self.target,
            "programs": [entry.document() for entry in self.programs],
        }
        return json.dumps(document, indent=1) + "\n"


def check_name(where: str, name: str) -> str:
    """The name of a program, which is that of a folder on any system.

    Raises:
        MilError: it is none.
    """
    if not _NAME.fullmatch(name) or name.endswith("."):
        want = "letters, digits, _, - and ., not first"
        raise MilError(where, "not a program's name", got=f"{name!r:.120}", want=want)
    return name


def parts_of(where: str, path: str) -> tuple[str, ...]:
    """The way from a program's folder to a blob file that its text names.

    Raises:
        MilError: it leads nowhere inside the folder.
    """
    inner = PurePosixPath(path)
    is_inside = path.startswith(f"{ROOT}/") and str(inner) == path
    if not is_inside or not all(map(_PART.fullmatch, inner.parts[1:])):
        got, want = f"{path!r:.120}", f"{ROOT}/… inside the program"
        raise MilError(where, "not a path in the program", got=got, want=want)
    return inner.parts[1:]


def parse_manifest(where: str, data: bytes) -> Manifest:
    """The manifest of a file's bytes, every field looked at.

    Raises:
        MilError: it is damaged, of another kind, or of a later version.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MilError(where, "not JSON", got=f"{error}"[:200], hint="compile again") from None
    top = Reader(where, document)
    if top.of("format", str) != FORMAT:
        raise MilError(where, "not a manifest of programs", got=top.get("format"), want=FORMAT)
    if top.of("version", int) != VERSION:
        hint = "compile again with this version"
        raise MilError(where, "another version", got=top.get("version"), want=VERSION, hint=hint)
    target = None if top.get("target") is None else top.of("target", str)
    entries = [read_entry(reader) for reader in top.listed("programs", MAX_PROGRAMS)]
    names = [entry.name.lower() for entry in entries]
    if not entries or len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})[:8] or "no program"
        raise MilError(where, "programs need names of their own", got=twice)
    return Manifest(top.of("tool", str), target, tuple(entries))


def read_entry(reader: Reader) -> Entry:
    """The entry that an object of a document holds.

    Raises:
        MilError: a field is missing or damaged.
    """
    name = check_name(reader.where, reader.of("name", str))
    inner = Reader(f"{reader.where}: {name}", reader.fields)
    files = []
    for file in inner.listed("files", MAX_FILES):
        path = file.of("path", str)
        parts_of(file.where, path)
        files.append(BlobFile(path, file.size("bytes"), file.digest("digest")))
    if len({file.path.lower() for file in files}) != len(files):
        raise MilError(inner.where, "a blob file is listed twice")
    size = inner.size("weight_bytes")
    if size != sum(file.bytes for file in files):
        raise MilError(inner.where, "weight_bytes is not the files' sum", got=size)
    return Entry(
        name,
        inner.digest("code_key"),
        inner.digest("weights_key"),
        inner.size("ops"),
        size,
        tuple(files),
        _ports(inner, "inputs"),
        _ports(inner, "outputs"),
    )


def _ports(reader: Reader, key: str) -> tuple[Port, ...]:
    found = []
    for port in reader.listed(key, MAX_PORTS):
        logical = None if port.get("logical") is None else read_type(port.inner("logical"))
        name, symbol = port.of("name", str), port.of("symbol", str)
        found.append(Port(name, symbol, read_type(port.inner("type")), logical))
    if len({port.name for port in found}) != len(found):
        raise MilError(reader.where, f"{key}: a port is listed twice")
    return tuple(found)


def read_type(reader: Reader) -> TensorType:
    """The type that an object of a document holds.

    Raises:
        MilError: it is none.
    """
    sizes = reader.of("shape", list)
    if not all(type(size) is int for size in sizes):
        raise MilError(reader.where, "shape is no list of sizes", got=f"{sizes!r:.120}")
    try:
        return TensorType(DType(reader.of("dtype", str)), tuple(sizes))
    except (ValueError, ShapeError) as error:
        raise MilError(reader.where, "no such type", got=f"{error}"[:200]) from None


def _written(port: Port) -> dict[str, Any]:
    logical = None if port.logical is None else spelled(port.logical)
    return {
        "name": port.name,
        "symbol": port.symbol,
        "type": spelled(port.type),
        "logical": logical,
    }


def spelled(of: TensorType) -> dict[str, Any]:
    """A type as JSON has it."""
    return {"dtype": of.dtype.value, "shape": list(of.shape)}


class Reader:
    """An object of a document, each of its fields asked for by its kind."""

    def __init__(self, where: str, fields: object) -> None:
        if not isinstance(fields, dict):
            raise MilError(where, "not an object", got=type(fields).__name__)
        self.where, self.fields = where, fields

    def get(self, key: str) -> object:
        """The field, or None."""
        return self.fields.get(key)

    def of(self, key: str, kind: type) -> Any:
        """The field, which must be of this kind."""
        value = self.fields.get(key)
        if type(value) is not kind:
            got = "nothing" if value is None else f"{value!r:.120}"
            raise MilError(self.where, f"{key} is missing or damaged", got=got, want=kind.__name__)
        return value

    def size(self, key: str) -> int:
        """The field as a number from 0."""
        value: int = self.of(key, int)
        if not 0 <= value < 1 << 62:
            raise MilError(self.where, f"{key} is no size", got=value)
        return value

    def digest(self, key: str) -> str:
        """The field as an identity in hex."""
        value: str = self.of(key, str)
        if not _DIGEST.fullmatch(value):
            raise MilError(self.where, f"{key} is no digest", got=f"{value!r:.80}")
        return value

    def inner(self, key: str) -> Reader:
        """The field as an object."""
        return Reader(f"{self.where}: {key}", self.of(key, dict))

    def listed(self, key: str, most: int) -> list[Reader]:
        """The field as a list of objects, not longer than `most`."""
        values = self.of(key, list)
        if len(values) > most:
            raise MilError(self.where, f"{key} is too long", got=len(values), want=most)
        return [Reader(f"{self.where}: {key} {i}", value) for i, value in enumerate(values)]


def by_name(manifest: Manifest) -> Mapping[str, Entry]:
    """The entries by name, in their order."""
    return {entry.name: entry for entry in manifest.programs}
