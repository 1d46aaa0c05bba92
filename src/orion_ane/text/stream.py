"""Streamer: ids in, text out, each character as soon as it is whole."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from orion_ane.text.vocabulary import Strip, Vocabulary

_Utf8 = codecs.getincrementaldecoder("utf-8")


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
        self._utf8 = _Utf8("replace")
        for token in prefix_ids:
            self._utf8.decode(self._bytes(token))
        # A prefix that breaks off inside a character has counted it already, as one U+FFFD.
        self._skip = 1 if self._utf8.getstate()[0] else 0

    def push(self, token: int) -> str:
        """The characters that this id completes; most often one word, sometimes nothing.

        Raises:
            DataError: there is no such token.
        """
        return self._unseen(self._utf8.decode(self._bytes(token)))

    def flush(self) -> str:
        """What is left: one U+FFFD where the last character never became whole (case G09)."""
        return self._unseen(self._utf8.decode(b"", final=True))

    def _unseen(self, text: str) -> str:
        if self._skip and text:
            self._skip, text = 0, text[1:]
        return text

    def _bytes(self, token: int) -> bytes:
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
