"""The files of an `.mlpackage`: the model's message and the blob files beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from orion_ane.errors import MilError
from orion_ane.mil.blob import Blob, read_blob
from orion_ane.mil.program import Buffer

ROOT = "@model_path"
MAX_MODEL_BYTES = 1 << 31  # protobuf's own limit of a message
MAX_MANIFEST_BYTES = 1 << 20


@dataclass
class Files:
    """The blob files of a package, mapped into memory when they are first asked for."""

    folder: Path
    read: dict[str, Buffer] = field(default_factory=dict)

    def blob(self, path: str, offset: int) -> Blob:
        """The blob whose metadata is at `offset` of a file.

        Raises:
            MilError: the path leads out of the package, or there is no such file or blob.
        """
        if path not in self.read:
            inner = PurePosixPath(path)
            if not inner.parts or inner.parts[0] != ROOT or ".." in inner.parts or "\\" in path:
                raise MilError("blob file", "not a path in the package", got=path, want=f"{ROOT}/…")
            file = _inside(self.folder, "/".join(inner.parts[1:]))
            self.read[path] = _mapped(file)
        return read_blob(self.read[path], offset)


def model_file(package: Path) -> Path:
    """The file of a package's model, by its manifest.

    Raises:
        MilError: this is no package, or its manifest names no file in it.
    """
    manifest = package / "Manifest.json"
    try:
        size = manifest.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise MilError(str(manifest), "too long", got=size, want=MAX_MANIFEST_BYTES)
        document = json.loads(manifest.read_bytes())
        root = document["rootModelIdentifier"]
        path = document["itemInfoEntries"][root]["path"]
    except OSError as error:
        raise MilError(str(package), "not an mlpackage", got=error.strerror) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MilError(str(manifest), "names no model", got=repr(error)[:200]) from error
    if not isinstance(path, str) or not path or "\\" in path or PurePosixPath(path).is_absolute():
        raise MilError(str(manifest), "not a path in the package", got=repr(path)[:200])
    return _inside(package / "Data", path)


def read_model_bytes(path: Path) -> bytes:
    """The bytes of a model's message.

    Raises:
        MilError: there is no such file, or it is longer than a message may be.
    """
    try:
        if path.stat().st_size > MAX_MODEL_BYTES:
            raise MilError(str(path), "too long for a message", want=MAX_MODEL_BYTES)
        return path.read_bytes()
    except OSError as error:
        raise MilError(str(path), "cannot be read", got=error.strerror) from error


def _inside(folder: Path, path: str) -> Path:
    """A file below a folder, wherever links lead.

    Raises:
        MilError: it is not below.
    """
    try:
        found = (folder / path).resolve()
        inside = found.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise MilError(str(folder), "not a path in the package", got=path[:200]) from error
    if not inside:
        raise MilError(str(folder), "not a path in the package", got=path[:200])
    return found


def _mapped(path: Path) -> Buffer:
    try:
        if not path.is_file():
            raise MilError(str(path), "no such blob file")
        if not path.stat().st_size:
            return b""
        return np.memmap(path, np.uint8, "r").data.toreadonly()
    except OSError as error:
        raise MilError(str(path), "cannot be read", got=error.strerror) from error
