"""Work that falls into parts: who does them, and how many at once, does not show in the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

Each: TypeAlias = Callable[[Callable[[int], None], Iterable[int]], None]
"""Has a function called with each number, and comes back when all are done."""


def in_turn(task: Callable[[int], None], parts: Iterable[int]) -> None:
    """One part after the other."""
    for part in parts:
        task(part)
