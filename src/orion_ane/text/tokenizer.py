"""Tokenizer: text to ids and back, prompts, chats and streams, for every kind of vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from orion_ane.errors import DataError
from orion_ane.text.codec import Codec
from orion_ane.text.stream import Streamer
from orion_ane.text.template import ChatTemplate, Message
from orion_ane.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer.

    Attributes:
        vocabulary: what each id prints.
        codec: how text becomes ids.
        bos_id: the token that text starts from, where there is one.
        eos_ids: the tokens that end a text or a turn.
        adds_bos: whether a prompt starts with BOS.
        template: how messages become text, where the model was tuned for chat.
        names: special tokens by role (`bos_token`, …), as the template sees them.
    """

    vocabulary: Vocabulary
    codec: Codec
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    adds_bos: bool = False
    template: ChatTemplate | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return len(self.vocabulary)

    def encode(self, text: str, *, specials: bool = False) -> list[int]:
        """The ids of a text, without BOS.

        Args:
            text: any text.
            specials: whether the names of control tokens in it become those tokens. Otherwise they
                are text like any other, and no control token comes out (case T09).

        Raises:
            DataError: a lone surrogate, or text that the vocabulary has no tokens for.
        """
        _check_unicode(text)
        return self.codec.encode(self._split(text) if specials else [text] if text else [])

    def prompt_ids(self, text: str, *, specials: bool = False) -> list[int]:
        """The ids to start a generation from: BOS where the model wants one, then the text.

        An empty prompt starts from BOS, or else from the token that ends a text (case U11).

        Args:
            text: any text.
            specials: as for `encode`: a conversation that is written out already wants it.

        Raises:
            DataError: as `encode`, or an empty prompt where there is neither token.
        """
        start = [] if self.bos_id is None else [self.bos_id]
        ids = self.encode(text, specials=specials)
        if ids:
            return start + ids if self.adds_bos else ids
        start = start or list(self.eos_ids[:1])
        if not start:
            raise DataError("prompt", "empty, and the model has no token to start from")
        return start

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """The text of ids; control tokens print their names only with `specials`.

        Bytes that are not UTF-8 become U+FFFD, one for each maximal run that could have been the
        beginning of a character.

        Raises:
            DataError: there is no such token.
        """
        printed = self.stream(specials=specials).printed
        return b"".join([printed(token) for token in ids]).decode("utf-8", "replace")

    def stream(self, *, specials: bool = False, prefix_ids: Iterable[int] = ()) -> Streamer:
        """A decoder to push ids into, one by one, after `prefix_ids` that are printed already."""
        return Streamer(self.vocabulary, specials=specials, prefix_ids=prefix_ids)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        generation_prompt: bool = True,
        specials: bool = False,
    ) -> list[int]:
        """The ids of a conversation in the model's own format.

        Args:
            messages: mappings with `role` and `content`, and what else the template reads.
            generation_prompt: whether the assistant's turn is opened at the end.
            specials: whether the names of control tokens inside the messages become those tokens.
                Otherwise only the template writes them: no message can end its own turn.

        Raises:
            DataError: no template, one that fails, or messages it refuses.
        """
        if self.template is None:
            raise DataError(
                "chat", "the model has no chat template", hint="encode the text as a prompt"
            )
        guarded = () if specials else tuple(self.vocabulary.controls)
        rendered = self.template.render(
            messages, generation_prompt=generation_prompt, names=self.names, guarded=guarded
        )
        parts: list[str | int] = []
        for text, is_guarded in rendered:
            _check_unicode(text)
            _extend(parts, [text] if is_guarded else self._split(text))
        return self.codec.encode(parts)

    def _split(self, text: str) -> list[str | int]:
        """The text in parts, the control tokens it names as ids."""
        parts: list[str | int] = []
        end = 0
        for match in self._controls.finditer(text) if self.vocabulary.controls else ():
            _extend(parts, [text[end : match.start()], self.vocabulary.controls[match[0]]])
            end = match.end()
        _extend(parts, [text[end:]])
        return parts

    @cached_property
    def _controls(self) -> re.Pattern[str]:
        names = sorted(self.vocabulary.controls, key=len, reverse=True)  # the longest name wins
        return re.compile("|".join(map(re.escape, names)))


def _extend(parts: list[str | int], more: Iterable[str | int]) -> None:
    """Append parts, joining neighbouring texts, since words may reach across the seam."""
    for part in more:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part != "":
            parts.append(part)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = f"U+{ord(text[error.start]):04X} at character {error.start}"
        raise DataError("encode", "not Unicode text: a lone surrogate", got=bad) from error
