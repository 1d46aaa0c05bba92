"""Type encodings of Objective-C methods: read, compared, and turned into types of ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, TypeAlias

from orion_ane.errors import BackendError

Match: TypeAlias = Literal["exact", "compatible", "mismatch"]

QUALIFIERS = "rnNoORVA"
CLOSING = {"{": "}", "(": ")", "[": "]"}
TRUTHS = frozenset("BcC")
"""BOOL is `bool` on arm64 macOS, `signed char` on x86_64 macOS, `unsigned char` under GCC; only its
low byte is defined, which is what each of the three reads."""
SCALARS: dict[str, Any] = {
    "v": None,
    "B": ctypes.c_bool,
    "c": ctypes.c_byte,
    "C": ctypes.c_ubyte,
    "s": ctypes.c_short,
    "S": ctypes.c_ushort,
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "l": ctypes.c_int,
    "L": ctypes.c_uint,
    "q": ctypes.c_longlong,
    "Q": ctypes.c_ulonglong,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "*": ctypes.c_char_p,
}
POINTERS = frozenset("@#:^")


def parse(encoding: str) -> tuple[str, ...]:
    """The types of the result and of each argument, without offsets, qualifiers and class names.

    Raises:
        BackendError: it is none.
    """
    found, at = [], 0
    while at < len(encoding):
        kind, at = _one(encoding, at)
        found.append(kind)
        while at < len(encoding) and (encoding[at].isdigit() or encoding[at] in "+-"):
            at += 1
    return tuple(found)


def _one(encoding: str, at: int) -> tuple[str, int]:
    """The type that begins at a place, and the place behind it."""
    while encoding[at : at + 1] and encoding[at] in QUALIFIERS:
        at += 1
    first = encoding[at : at + 1]
    if first == "^":
        kind, end = _one(encoding, at + 1)
        return "^" + kind, end
    if first in CLOSING:
        end = _behind(encoding, at)
        return encoding[at:end], end
    if first == "@":
        following = encoding[at + 1 : at + 2]
        if following == "?":
            return "@?", at + 2
        if following == '"':
            end = encoding.find('"', at + 2)
            if end > 0:
                return "@", end + 1
        return "@", at + 1
    if first in SCALARS or first in "#:":
        return first, at + 1
    raise BackendError("type encoding", "not one of a method", got=encoding)


def _behind(encoding: str, at: int) -> int:
    """The place behind what is bracketed."""
    opening, closing, depth = encoding[at], CLOSING[encoding[at]], 0
    for end in range(at, len(encoding)):
        depth += (encoding[end] == opening) - (encoding[end] == closing)
        if depth == 0:
            return end + 1
    raise BackendError("type encoding", "a bracket is not closed", got=encoding)


def compare(want: str, got: str) -> Match:
    """Whether a call that was made for one encoding may be made under the other.

    What a pointer points to and which kind of BOOL it is makes no difference to the call.
    """
    if want == got:
        return "exact"
    try:
        pairs = list(zip(parse(want), parse(got), strict=True))
    except (ValueError, BackendError):
        return "mismatch"
    return "compatible" if all(_is_same(*pair) for pair in pairs) else "mismatch"


def _is_same(one: str, other: str) -> bool:
    if one == other or {one, other} <= TRUTHS:
        return True
    return one[0] == other[0] and one[0] in "@^"


def ctype(kind: str) -> Any:
    """The type of ctypes for one type of an encoding.

    Raises:
        BackendError: the bridge passes none such, as structures.
    """
    if kind[0] in POINTERS:
        return ctypes.c_void_p
    if kind in SCALARS:
        return SCALARS[kind]
    raise BackendError("type encoding", "the bridge passes no such type", got=kind)
