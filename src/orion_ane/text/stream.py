"""Streamer: ids in, text out, each character as soon as it is whole."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orion_ane.text.vocabulary import Strip, Vocabulary

# The beginning of a UTF-8 character that more bytes could finish (Unicode, table 3-7). Python's own
# incremental decoder also waits after ED A0, which nothing can finish, and then drops what follows.
_UNFINISHED = re.compile(
    rb"(?:[\xc2-\xdf]|\xe0[\xa0-\xbf]?|\xed[\x80-\x9f]?|[\xe1-\xec\xee\xef][\x80-\xbf]?"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3][\x80-\xbf]{0,2}"
    rb"|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)\Z"
)


class Streamer:
    """Text of one sequence of ids, as they come.

    What `push` and the last `flush` return, put together, is `decode(prefix_ids + pushed)` without
    its first `len(decode(prefix_ids))` characters.

    Args:
        vocabulary: what the ids print.
        specials: whether control tokens print their names.
        prefix_ids: what stands before: a prompt, whose text is not returned again.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, specials: bool = False, prefix_ids: Iterable[int] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._hidden = frozenset[int]() if specials else vocabulary.hidden
        self._strips = vocabulary.strip is not Strip.NONE
        self._pending = b""
        self._skip = 0
        for token in prefix_ids:
            self.push(token)
        # A prefix that breaks off inside a character has counted it already, as one U+FFFD.
        self._skip = 1 if self._pending else 0

    def push(self, token: int) -> str:
        """The characters that this id completes; most often one word, sometimes nothing.

        Raises:
            DataError: there is no such token.
        """
        data = self._pending + self.printed(token)
        rest = _UNFINISHED.search(data[-3:])
        end = len(data) - (len(rest[0]) if rest else 0)
        self._pending = data[end:]
        return self._unseen(data[:end].decode("utf-8", "replace"))

    def flush(self) -> str:
        """What is left: one U+FFFD where the last character never became whole (case G09)."""
        data, self._pending = self._pending, b""
        return self._unseen(data.decode("utf-8", "replace"))

    def printed(self, token: int) -> bytes:
        """The bytes that this id adds to the text, as the next one."""
        piece = self._vocabulary.piece(token)
        if token in self._hidden:
            return b""
        if self._strips and piece:
            shorn = piece
            if token not in self._vocabulary.bare:
                shorn = piece.removeprefix(b" ")
            self._strips = self._vocabulary.strip is Strip.ALL and not shorn
            return shorn
        return piece

    def _unseen(self, text: str) -> str:
        if self._skip and text:
            self._skip, text = 0, text[1:]
        return text
