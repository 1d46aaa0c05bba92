"""Tensors whose names and shapes are known, and whose numbers are read when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class Deferred(Mapping[str, Value]):
    """Arrays by name, read part by part; a part may give several.

    Args:
        parts: for each part, the names that it gives and how it is read.
    """

    def __init__(self, parts: Mapping[tuple[str, ...], Callable[[], tuple[Value, ...]]]) -> None:
        self._read = {name: (names, read) for names, read in parts.items() for name in names}
        self._found: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._found:
            names, read = self._read[name]
            self._found.update(zip(names, read(), strict=True))
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)
