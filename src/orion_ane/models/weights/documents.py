"""JSON from files that nobody vouches for: bounded, without doubles, errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from orion_ane.errors import CheckpointError

MAX_BYTES = 64 << 20  # the largest tokenizer.json in use has some 30 MB; no config comes near


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        CheckpointError: no readable file, not JSON, or not an object.
    """
    return parse_json(str(path), _read(path))


def read_text(path: Path) -> str:
    """The text in a UTF-8 file.

    Raises:
        CheckpointError: no readable file, or not UTF-8.
    """
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(str(path), f"not UTF-8 ({error.reason})") from error


def parse_json(where: str, data: bytes) -> dict[str, object]:
    """The object that UTF-8 JSON spells, in which each name stands once.

    Raises:
        CheckpointError: not JSON, not an object, a name twice, or nested too deeply.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        cause = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CheckpointError(where, f"not JSON ({cause})") from error
    if not isinstance(value, dict):
        raise CheckpointError(where, "not a JSON object", got=type(value).__name__)
    return value


def _read(path: Path) -> bytes:
    """The bytes of a file of reasonable size."""
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise CheckpointError(str(path), "too large", got=size, want=f"at most {MAX_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        left = dict(found)
        twice = next(name for name, _ in pairs if left.pop(name, left) is left)
        raise ValueError(f"{twice!r} stands twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
