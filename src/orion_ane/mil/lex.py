"""Tokens of MIL text, each with its line and column, in time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import cast

from orion_ane.errors import MilError, OrionError
from orion_ane.mil.names import MAX_NAME

MAX_TEXT = 1 << 25
"""Characters a text may have: a program of 50,000 ops has a fifth of it."""
MAX_NUMBER = 128
MAX_STRING = 4096

# Space and comments, then one token, the end of the text being the empty one.  Repeats are
# possessive, so that nothing is tried twice; what begins nothing is a token of one character.
_TOKEN = re.compile(
    r"""
    (?: [ \t\r\n\f\v]++ | //[^\n]*+ | /\*(?:[^*]++|\*(?!/))*+\*/ )*+
    (
      [A-Za-z_][A-Za-z0-9_@]*+
    | [<>\[\](){},=;]
    | [-+]?\.?[0-9](?:[eEpP][-+]|[0-9A-Za-z.])*+
    | [-+](?:inf|nan)(?![A-Za-z0-9_@])
    | "(?:[^"\\\n]|\\.)*+"
    | ->
    | [^ \t\r\n\f\v]
    | \Z
    )""",
    re.VERBOSE,
)
_next = cast("Callable[[str, int], re.Match[str]]", _TOKEN.match)  # matches everywhere
_NAME_STARTS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NUMBER_STARTS = frozenset("0123456789+-.")
_SPECIAL = {"inf": float("inf"), "nan": float("nan")}
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPED = str.maketrans({char: f"\\{letter}" for letter, char in _ESCAPES.items()})


class Tokens:
    """A text's tokens, one at a time: `next` is the one to come, empty at the end of the text.

    Raises:
        MilError: the text is too long.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise MilError("mil", "text too long", got=len(text), want=f"at most {MAX_TEXT}")
        self.text = text
        self.elements = 0
        self._counted = (0, 1, 0)  # an offset, its line, and where that begins
        self.types: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.go_to(0)

    def go_to(self, offset: int) -> None:
        """Go to the first token from `offset` on."""
        self.match = match = _next(self.text, offset)
        self.next: str = match[1]

    def advance(self) -> None:
        """Go on to the token after this one."""
        self.match = match = _next(self.text, self.match.end())
        self.next = match[1]

    def accept(self, token: str) -> bool:
        """Go past `token` if it is next."""
        if self.next != token:
            return False
        self.advance()
        return True

    def expect(self, token: str) -> None:
        """Go past `token`, which must be next."""
        if self.next != token:
            raise self.unexpected(repr(token))
        self.match = match = _next(self.text, self.match.end())
        self.next = match[1]

    def word(self, want: str = "a name") -> str:
        """The identifier that must be next."""
        token = self.next
        if token[:1] not in _NAME_STARTS:
            raise self.unexpected(want)
        if len(token) > MAX_NAME:
            raise self.fail("name too long", got=len(token), want=f"at most {MAX_NAME} characters")
        self.match = match = _next(self.text, self.match.end())
        self.next = match[1]
        return token

    @property
    def at_name(self) -> bool:
        """Whether an identifier is next."""
        return self.next[:1] in _NAME_STARTS

    @property
    def at_number(self) -> bool:
        """Whether a number is next, `inf` and `nan` among them."""
        return self.next[:1] in _NUMBER_STARTS or self.next in _SPECIAL

    def number(self) -> int | float:
        """The number that must be next, exact where a float64 is."""
        token = self.next
        if not self.at_number or token in ("->", "-", "+", "."):
            raise self.unexpected("a number")
        if len(token) > MAX_NUMBER:
            raise self.fail("number too long", want=f"at most {MAX_NUMBER} characters")
        try:
            value = number(token)
        except (ValueError, OverflowError):
            raise self.fail("not a number", got=token) from None
        self.advance()
        return value

    def string(self) -> str:
        """The string literal that must be next, without its escapes."""
        token = self.next
        if token[:1] != '"':
            raise self.unexpected("a string")
        if len(token) > MAX_STRING:
            raise self.fail("string too long", want=f"at most {MAX_STRING} characters")
        if len(token) == 1:
            raise self.fail("string does not end on its line")
        for escape in _ESCAPE.finditer(token):
            if escape[1] not in _ESCAPES:
                raise self.fail("no such escape", got=escape[0], want=r"\" \\ \n \t \r")
        self.advance()
        return _ESCAPE.sub(lambda escape: _ESCAPES[escape[1]], token[1:-1])

    def unexpected(self, want: str) -> MilError:
        """The error for a token that does not belong here."""
        if self.text.startswith("/*", self.match.start(1)):
            return self.fail("comment does not end")
        return self.fail("unexpected", got=_shown(self.next), want=want)

    def fail(
        self,
        what: str,
        *,
        at: re.Match[str] | None = None,
        got: object = None,
        want: object = None,
        hint: str | None = None,
    ) -> MilError:
        """An error at the next token, or at one gone by."""
        line, column = self._position((at or self.match).start(1))
        return MilError("mil", what, line=line, column=column, got=got, want=want, hint=hint)

    def _position(self, offset: int) -> tuple[int, int]:
        """Line and column, counted on from the fault before, so that many faults take no longer."""
        seen, line, start = self._counted if self._counted[0] <= offset else (0, 1, 0)
        line += self.text.count("\n", seen, offset)
        start = max(start, self.text.rfind("\n", seen, offset) + 1)
        self._counted = offset, line, start
        return line, offset - start + 1

    def located(self, error: OrionError, at: re.Match[str]) -> MilError:
        """An error of an op or a type, at the statement that caused it."""
        if isinstance(error, MilError) and error.line is not None:
            return error
        what = error.what if error.where == "mil" else f"{error.where}: {error.what}"
        got = None if error.got is None else shortened(str(error.got))
        return self.fail(what, at=at, got=got, want=error.want, hint=error.hint)


def quoted(text: str) -> str:
    """A string literal.

    Raises:
        MilError: the string cannot be read back.
    """
    escaped = text.translate(_ESCAPED)
    if not escaped.isprintable() or len(escaped) + 2 > MAX_STRING:
        want = f"printable characters, fewer than {MAX_STRING}"
        raise MilError("mil", "not a string of MIL", got=_shown(ascii(text)), want=want)
    return f'"{escaped}"'


def number(token: str) -> int | float:
    """The value of a number's token.

    Raises:
        ValueError: it is none.
        OverflowError: it is a float that float64 does not hold.
    """
    unsigned = (token[1:] if token[:1] in ("+", "-") else token).lower()
    if unsigned in _SPECIAL:
        return -_SPECIAL[unsigned] if token[0] == "-" else _SPECIAL[unsigned]
    if unsigned.startswith("0x"):
        return float.fromhex(token) if {"p", "."} & set(unsigned) else int(token, 16)
    if unsigned.isdigit():
        return int(token)
    value = float(token)
    if not isfinite(value):
        raise OverflowError
    return value


def shortened(text: str, most: int = 200) -> str:
    """What a message shows of a text of any length."""
    return text if len(text) <= most else f"{text[:most]} …"


def _shown(token: str) -> str:
    return repr(shortened(token, 40)) if token else "the end of the text"
