"""How text becomes ids: one protocol, and the library behind byte-level and merged vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tokenizers import Tokenizer as Library

from orion_ane.errors import DataError

# Code points that interchanged text does not hold.
NONCHARACTERS = (
    *(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFF, 0xFFFE)),
    *map(chr, range(0xFDD0, 0xFDF0)),
)


class Codec(Protocol):
    """Text to ids."""

    def encode(self, parts: Sequence[str | int]) -> list[int]:
        """The ids of a text that is given in parts: plain text, and control tokens by id."""
        ...


@dataclass(frozen=True)
class Aliases:
    """The names under which the library knows control tokens, so that no text spells one (T09).

    Attributes:
        mark: a noncharacter, which no token holds.
        length: how often it is repeated: more often than anywhere in the text.
    """

    mark: str
    length: int = 1

    def of(self, token: int) -> str:
        """The alias of a control token."""
        return f"{self.mark * self.length}{token};"

    @classmethod
    def beside(cls, where: str, names: Iterable[str]) -> Aliases:
        """Aliases that differ from all names and all texts made of them."""
        used = frozenset("".join(names))
        mark = next((char for char in NONCHARACTERS if char not in used), None)
        if mark is None:
            raise DataError(where, "the tokens hold every noncharacter of Unicode", want="text")
        return cls(mark)


class LibraryCodec:
    """A `tokenizers.Tokenizer` whose control tokens go by their aliases.

    Args:
        library: the tokenizer.
        aliases: the names of control tokens in it.
        absent: bytes that no token spells, in a vocabulary that has no other way to write them.
    """

    def __init__(
        self, library: Library, aliases: Aliases, absent: frozenset[int] = frozenset()
    ) -> None:
        self._library, self._aliases, self._absent = library, aliases, absent
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
        mark = self._aliases.mark
        runs = [len(run) for text in texts if mark in text for run in re.findall(f"{mark}+", text)]
        aliases = Aliases(mark, 1 + max(runs, default=0))
        library = self._library if aliases == self._aliases else self._renamed(aliases)
        text = "".join(part if isinstance(part, str) else aliases.of(part) for part in parts)
        return list(library.encode(text, add_special_tokens=False).ids)

    def _renamed(self, aliases: Aliases) -> Library:
        """The same tokenizer under aliases that a text at hand does not spell."""
        longer = aliases.mark * aliases.length
        return Library.from_str(self._library.to_str().replace(aliases.mark, longer))


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
            message = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise DataError(where, what, got=message) from error
        raise
