"""Vocabulary: what each id prints, as bytes, and which ids are control tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from orion_ane.errors import DataError

MAX_TOKENS = 1 << 21  # the largest vocabularies in use have under 300,000
MAX_PIECE = 1 << 16  # bytes of one token


class Strip(Enum):
    """How decoding undoes the space that encoding put before the text (case S05)."""

    NONE = "none"
    ONE = "one"  # the first token that prints loses one space
    ALL = "all"  # each token loses one until something is printed: encoding had trimmed the text


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model, indexed by id.

    Attributes:
        pieces: the bytes each id prints; None where no token has that id.
        controls: the ids of control tokens by name. Text never encodes to them unless asked.
        strip: what happens to the leading space of a decoded text.
        bare: ids whose leading space is the text's own and stays: raw bytes.
    """

    pieces: tuple[bytes | None, ...]
    controls: Mapping[str, int]
    strip: Strip = Strip.NONE
    bare: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.pieces)

    def padded(self, size: int) -> Vocabulary:
        """The same with ids up to `size`, which a model may have vectors for but no tokens.

        Those print nothing, as everywhere else.
        """
        pieces = tuple(b"" if piece is None else piece for piece in self.pieces)
        return replace(self, pieces=pieces + (b"",) * (size - len(pieces)))

    @cached_property
    def hidden(self) -> frozenset[int]:
        """The ids that print nothing unless asked to."""
        return frozenset(self.controls.values())

    def piece(self, token: int) -> bytes:
        """The bytes that a token prints.

        Raises:
            DataError: there is no such token.
        """
        piece = self.pieces[token] if 0 <= token < len(self.pieces) else None
        if piece is None:
            raise DataError("decode", "no such token", got=token, want=f"0 to {len(self) - 1}")
        return piece

    def name(self, token: int) -> str:
        """A control token's name, which is what it prints when asked to."""
        return self.piece(token).decode("utf-8", "replace")


def place(where: str, ids: Mapping[str, int]) -> list[str | None]:
    """The names in the order of their ids, None where an id has none.

    Raises:
        DataError: an id is used twice, negative, or absurd.
    """
    top = max(ids.values(), default=-1)
    if top >= MAX_TOKENS or min(ids.values(), default=0) < 0:
        bad = top if top >= MAX_TOKENS else min(ids.values())
        raise DataError(where, "id out of range", got=bad, want=f"0 to {MAX_TOKENS - 1}")
    names: list[str | None] = [None] * (top + 1)
    for name, index in ids.items():
        other = names[index]
        if other is not None:
            raise DataError(where, "two tokens have one id", got=f"{other!r} and {name!r}: {index}")
        names[index] = name
    return names


def index(where: str, names: Sequence[str]) -> dict[str, int]:
    """The id of each name.

    Raises:
        DataError: a name is there twice, empty, too long, or there are too many.
    """
    if not 0 < len(names) <= MAX_TOKENS:
        raise DataError(where, "tokens", got=len(names), want=f"1 to {MAX_TOKENS}")
    ids = {name: i for i, name in enumerate(names)}
    if len(ids) != len(names):
        i = next(i for i, name in enumerate(names) if ids[name] != i)
        raise DataError(
            where, "a token is there twice", got=f"{names[i]!r}: {i} and {ids[names[i]]}"
        )
    check_names(where, names)
    return ids


def check_names(where: str, names: Iterable[str]) -> None:
    """Refuse names that are empty or absurdly long."""
    lengths = [len(name) for name in names] or [1]
    if min(lengths) == 0 or max(lengths) > MAX_PIECE:
        got = f"{min(lengths)} to {max(lengths)}"
        raise DataError(where, "lengths of tokens", got=got, want=f"1 to {MAX_PIECE} characters")


def _byte_alphabet() -> str:
    """The character GPT-2 writes for each byte: itself where it shows, else one from U+0100."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return "".join(chr(b if b in shown else next(others)) for b in range(256))


BYTE_ALPHABET = _byte_alphabet()
GPT2_BYTE_ORDER = sorted(range(256), key=lambda b: (ord(BYTE_ALPHABET[b]) > 255, b))
# Characters below U+0100 that are not in the alphabet go where Latin-1 does not reach.
_TO_LATIN1 = dict.fromkeys(range(256), 0xFFFF) | {ord(c): b for b, c in enumerate(BYTE_ALPHABET)}


def byte_level(name: str) -> bytes:
    """The bytes that a byte-level piece stands for.

    A name with a character outside the byte alphabet was added as it is, not learned.
    """
    try:
        return name.translate(_TO_LATIN1).encode("latin-1")
    except UnicodeEncodeError:
        return name.encode()
