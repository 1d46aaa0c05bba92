"""Program: what a device is given, as data: MIL text, blob files, ports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from orion_ane.types import TensorType

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of a blob file.  A large file is one buffer shared by every program that reads it."""


def buffer_digest(data: Buffer) -> str:
    """The identity of a blob file's bytes."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


@dataclass(frozen=True)
class Port:
    """An input or output: the name users feed it by, its identifier in the text, its types.

    Attributes:
        name: the user's.
        symbol: the text's.
        type: of the surface that the device reads or writes, as the text has it.
        logical: of what the user feeds or gets, where that is another: it lies in the first
            corner of the surface, the rest is zero, and the surface may have a smaller type.
    """

    name: str
    symbol: str
    type: TensorType
    logical: TensorType | None = None

    @property
    def of(self) -> TensorType:
        """The type of what the user feeds or gets."""
        return self.logical or self.type


@dataclass(frozen=True, eq=False)
class Program:
    """The compiled form of a graph: MIL text in device form, blob files by path, ports in order.

    Attributes:
        text: the MIL program, one function `main`.
        weights: blob files by their path in the text (`@model_path/weights/weight.bin`).
        inputs: the function's parameters, in the text's order.
        outputs: the function's results, in the text's order.
        digests: whom to ask for the `buffer_digest` of a file that several programs share, so
            that it is read once, and only when a key is wanted; by path.
    """

    text: str
    weights: Mapping[str, Buffer]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    digests: Mapping[str, Callable[[], str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))
        object.__setattr__(self, "digests", MappingProxyType(dict(self.digests)))

    @cached_property
    def code_key(self) -> str:
        """The identity of the code: the same text with other weights needs no compile."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def weights_key(self) -> str:
        """The identity of the weights: paths and contents."""
        digest = hashlib.blake2b(digest_size=32)
        for path in sorted(self.weights):
            shared = self.digests.get(path)
            contents = shared() if shared else buffer_digest(self.weights[path])
            digest.update(f"{path}\0{contents}\0".encode())
        return digest.hexdigest()

    @property
    def weight_bytes(self) -> int:
        """The size of all blob files."""
        return sum(len(memoryview(data).cast("B")) for data in self.weights.values())
