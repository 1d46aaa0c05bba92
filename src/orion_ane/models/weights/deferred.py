"""Tensors whose names and shapes are known, and whose numbers are read when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from weakref import WeakValueDictionary

Value = TypeVar("Value")


class Deferred(Mapping[str, Value]):
    """Arrays by name, read part by part; a part may give several.

    They are not held: once nobody has an array any more, who asks for it has it read again.  So a
    model that is computed as it is read need not be in memory beside what is made of it.  Only what
    a part gave beside the array that was asked for is held, until it is asked for itself.

    Several threads may ask at once: one of them reads.

    Args:
        parts: for each part, the names that it gives and how it is read.
    """

    def __init__(self, parts: Mapping[tuple[str, ...], Callable[[], tuple[Value, ...]]]) -> None:
        self._read = {name: (names, read) for names, read in parts.items() for name in names}
        self._unasked: dict[str, Value] = {}  # of parts that were read for another name
        self._given: WeakValueDictionary[str, Value] = WeakValueDictionary()
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Value:
        with self._lock:
            found = self._given.get(name)
            if found is None and name not in self._unasked:
                names, read = self._read[name]
                self._unasked.update(zip(names, read(), strict=True))
            if found is None:
                self._given[name] = found = self._unasked.pop(name)
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)
