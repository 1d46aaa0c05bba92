"""How text becomes ids: one protocol, and the library behind byte-level and merged vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tokenizers import Tokenizer as Library

from orion_ane.errors import DataError

# Control tokens are entered in the library under aliases, so that no text can spell one: case T09.
# U+FFFF and U+FFFE are noncharacters, which interchanged text does not hold; where one does, the
# aliases grow until it cannot contain them.
MARK, END = "\uffff", "\ufffe"


class Codec(Protocol):
    """Text to ids."""

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of a text that is given in parts: plain text, and control tokens by id."""
        ...


def alias(token: int, length: int = 1) -> str:
    """The name under which the library knows a control token."""
    return f"{MARK * length}{token}{END}"


class LibraryCodec:
    """A `tokenizers.Tokenizer` whose control tokens go by their aliases.

    Args:
        library: the tokenizer, which holds no other name with a noncharacter.
        absent: bytes that no token spells, in a vocabulary that has no other way to write them.
    """

    def __init__(self, library: Library, absent: frozenset[int] = frozenset()) -> None:
        self._library = library
        self._absent = absent
        library.no_truncation()
        library.no_padding()

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of the parts.

        Raises:
            DataError: a byte that the vocabulary has no token for.
        """
        texts = [part for part in parts if isinstance(part, str)]
        lost = self._absent and self._absent.intersection("".join(texts).encode())
        if lost:
            bad = ", ".join(f"0x{byte:02X}" for byte in sorted(lost))
            raise DataError("encode", "the vocabulary cannot write this text", got=f"byte {bad}")
        runs = [len(run) for text in texts if MARK in text for run in re.findall(f"{MARK}+", text)]
        length = 1 + max(runs, default=0)
        library = self._library if length == 1 else self._renamed(length)
        text = "".join(part if isinstance(part, str) else alias(part, length) for part in parts)
        return list(library.encode(text, add_special_tokens=False).ids)

    def _renamed(self, length: int) -> Library:
        """The same tokenizer, its aliases longer than any that a text at hand could spell."""
        return Library.from_str(self._library.to_str().replace(MARK, MARK * length))


@contextmanager
def library_errors(where: str, what: str) -> Iterator[None]:
    """Turn what the tokenizer libraries raise about a file into a DataError.

    They raise bare `Exception`, and a panic of theirs is a BaseException that cannot be imported.
    """
    try:
        yield
    except DataError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(where, what, got=str(error).partition("\n")[0]) from error
        raise
