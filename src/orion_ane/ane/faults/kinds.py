"""The ways in which a broken limit shows, each a kind of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from orion_ane.ane.limits.subject import Subject
from orion_ane.mil.arguments import Argument
from orion_ane.mil.module import Statement
from orion_ane.types import Array

Args: TypeAlias = dict[str, Argument]


@dataclass(frozen=True)
class Refused:
    """The compiler refuses the program, with these words."""

    words: str


@dataclass(frozen=True)
class Crashes:
    """The compiler's process ends, which these words tell."""

    words: str


@dataclass(frozen=True)
class Fails:
    """The program compiles, and each run ends with these words."""

    words: str


@dataclass(frozen=True)
class Misread:
    """A statement is computed on other arguments than it is given.

    Attributes:
        change: the arguments that the device takes instead.
    """

    change: Callable[[Subject, Statement, Args], Args]


@dataclass(frozen=True)
class Miscomputed:
    """A statement's result is another.

    Attributes:
        how: the result that comes, of the right one and of the operands named.
        operands: parameters of the statement.
    """

    how: Callable[..., Array]
    operands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unchecked:
    """A weight is whatever bytes lie where its reference and metadata point."""


@dataclass(frozen=True)
class Misbound:
    """Surfaces meet the ports of a side in the order of `Behaviour.binding`."""

    side: str


@dataclass(frozen=True)
class Misstrided:
    """Rows that are not whole: a failing run or other values, by `Behaviour.narrow_rows`."""


@dataclass(frozen=True)
class Zeroed:
    """A port holds zeros."""


Fault: TypeAlias = (
    Refused | Crashes | Fails | Misread | Miscomputed | Unchecked | Misbound | Misstrided | Zeroed
)
