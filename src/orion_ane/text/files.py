"""Tokenizer files as bytes, text and JSON, within bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orion_ane.errors import DataError

MAX_FILE = 1 << 28  # bytes; the largest tokenizer.json in use have under 40 million


def read_bytes(path: Path) -> bytes:
    """What the file holds.

    Raises:
        DataError: it is not there, not readable, or absurdly large.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise DataError(str(path), "too large", got=f"{size} bytes", want=f"at most {MAX_FILE}")
        return path.read_bytes()
    except OSError as error:
        raise DataError(str(path), "cannot be read", got=error.strerror) from error


def read_text(path: Path) -> str:
    """What the file says, in UTF-8.

    Raises:
        DataError: as `read_bytes`, or other bytes than UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(str(path), "not UTF-8", got=f"byte {error.start}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file.

    Raises:
        DataError: as `read_text`, or something else than a JSON object.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(str(path), "not JSON", got=error) from error
    if not isinstance(value, dict):
        raise DataError(str(path), "not a JSON object", got=type(value).__name__)
    return value


def integer(where: str, fields: Mapping[str, object], key: str) -> int | None:
    """The number under a key, None where there is none.

    Raises:
        DataError: something else stands there.
    """
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise DataError(where, f"{key}: not a number", got=repr(value))
    return int(value.__index__())
