"""The calls that some work takes: unlike its time, the same on every machine, busy or not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Calls:
    """Those of Python's functions and of C's that Python called, on this thread."""

    count = 0


@contextmanager
def counting() -> Iterator[Calls]:
    calls = Calls()

    def see(_frame, event, _what):
        calls.count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of(work: Callable[[], Any]) -> int:
    with counting() as calls:
        work()
    return calls.count
