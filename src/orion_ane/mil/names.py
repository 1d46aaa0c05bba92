"""Identifiers of the text: what the user's names become, each its own."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME = 1024
"""The longest identifier that is written or read."""

_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (1, 2, 3, 4, 6, 8, 16, 32, 64)}
TYPE_WORDS = frozenset(
    {"bool", "tensor", "list", "dict", "tuple", "string", "state", "bf16", "fp16", "fp32", "fp64"}
    | _INTEGERS
)
"""Words that begin a type; none of them can be a value's name (case A13)."""

RESERVED = TYPE_WORDS | frozenset(
    {"any", "program", "func", "true", "false", "const", "BLOBFILE", "inf", "nan"}
)

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_@]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9_@]")
_ROOT = 200  # letters kept of a name that has to change


def is_identifier(name: str) -> bool:
    """Whether a value may have this name in a text."""
    return len(name) <= MAX_NAME and name not in RESERVED and bool(_IDENTIFIER.fullmatch(name))


def symbols(names: Iterable[str]) -> tuple[str, ...]:
    """An identifier for each name, all of them different.

    A name that is one already stays as it is, wherever it stands; the others are cleaned and get
    a number where that is taken (case A15).  A name that comes again is another value.
    """
    wanted = tuple(names)
    untouched = {name for name in wanted if is_identifier(name)}
    taken = set(untouched)
    counts: dict[str, int] = {}
    found = []
    for name in wanted:
        if name in untouched:
            untouched.remove(name)
            found.append(name)
        else:
            found.append(_fresh(_cleaned(name), taken, counts))
    return tuple(found)


def _cleaned(name: str) -> str:
    root = _FOREIGN.sub("_", name[:_ROOT])
    return root if _IDENTIFIER.fullmatch(root) else f"_{root}"


def _fresh(root: str, taken: set[str], counts: dict[str, int]) -> str:
    """`root`, or the first `root_1`, `root_2`, … that is free; now taken."""
    symbol = root
    while symbol in taken or symbol in RESERVED:
        counts[root] = counts.get(root, 0) + 1
        symbol = f"{root}_{counts[root]}"
    taken.add(symbol)
    return symbol
