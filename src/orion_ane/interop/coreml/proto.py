"""The message classes of Core ML's files, of the extra `coreml`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from orion_ane.errors import ConfigError, MilError

_PACKAGE = "orion_ane.interop.coreml.messages"


@cache
def messages(module: str) -> Any:
    """A module of coremltools' generated classes, as `Model_pb2`.

    It is loaded from coremltools' folder without coremltools itself, which starts every framework
    that it finds: 60 ms instead of 4 s.

    Raises:
        ConfigError: the extra `coreml` is not installed.
    """
    if _PACKAGE not in sys.modules:
        found = importlib.util.find_spec("coremltools")
        if found is None or found.origin is None:
            raise _missing("coremltools")
        package = ModuleType(_PACKAGE)
        package.__path__ = [str(Path(found.origin).parent / "proto")]
        sys.modules[_PACKAGE] = package
    try:
        return importlib.import_module(f"{_PACKAGE}.{module}")
    except ImportError as error:
        raise _missing(error.name or module) from error


def word_of(code: int) -> str:
    """The word of an element type in MIL text; empty where there is no such type."""
    return _words().get(code, "")


def code_of(word: str) -> int:
    """The number of an element type in a message."""
    return next(code for code, known in _words().items() if known == word)


@cache
def _words() -> dict[int, str]:
    names = messages("MIL_pb2").DataType.items()
    lower = {code: name.lower().replace("bfloat", "bf") for name, code in names if code}
    return {code: name.replace("float", "fp") for code, name in lower.items()}


def decoded(data: bytes, where: str) -> Any:
    """A model's message.

    Raises:
        MilError: the bytes are none.
        ConfigError: the extra `coreml` is not installed.
    """
    model = messages("Model_pb2").Model
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    try:
        return model.FromString(data)
    except decode_error as error:
        raise MilError(where, "not a Core ML model", got=str(error)[:200]) from error


def _missing(package: str) -> ConfigError:
    hint = 'pip install "orion-ane[coreml]"'
    return ConfigError("coreml", "a package is missing", got=package, hint=hint)
