"""The tokenizer inside a GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from orion_ane.errors import DataError
from orion_ane.text.bpe import SPLITTINGS, byte_level_bpe
from orion_ane.text.files import integer
from orion_ane.text.spm import Kind, Piece, SpmCodec, spm_model, spm_vocabulary
from orion_ane.text.template import ChatTemplate
from orion_ane.text.tokenizer import Tokenizer
from orion_ane.text.vocabulary import BYTE_ALPHABET, Strip, index

PREFIX = "tokenizer.ggml."
_ENDS = ("eos", "eot", "eom")  # of a text, a turn, a message
_NAMED = ("bos", "eos", "unknown", "padding")
_IN_TEMPLATES = {"unknown": "unk", "padding": "pad"}
Scalar = TypeVar("Scalar", str, int, float)


def from_gguf(fields: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that GGUF metadata describes.

    Args:
        fields: the file's metadata, keys and values as in the file; other keys than the
            tokenizer's may be there. What is read: `tokenizer.ggml.` model, pre, tokens, scores,
            merges, token_type, the ids of special tokens, add_bos_token and add_space_prefix, and
            `tokenizer.chat_template`.

    Raises:
        DataError: a kind of vocabulary or a rule to split words that is not supported, or fields
            that are missing, damaged or do not fit together.
    """
    found = _Fields(fields)
    model = found.text("tokenizer.ggml.model")
    match model:
        case "gpt2":
            return _byte_level(found)
        case "llama":
            return _sentencepiece(found)
        case _:
            raise DataError("GGUF", f"{PREFIX}model", got=model or "none", want="gpt2 or llama")


def _byte_level(fields: _Fields) -> Tokenizer:
    pre = fields.text("tokenizer.ggml.pre")
    splitting = SPLITTINGS.get(pre or "")
    if splitting is None:
        raise DataError(
            "GGUF",
            f"{PREFIX}pre: not a known rule to split words",
            got=pre or "none",
            want=", ".join(SPLITTINGS),
            hint="load the model's own tokenizer.json instead",
        )
    names, kinds = fields.tokens()
    merges = _merges(fields.array("merges", str))
    hidden = {i for i, kind in enumerate(kinds) if kind in (Kind.CONTROL, Kind.UNKNOWN)}
    special = {fields.ids[role] for role in ("bos", *_ENDS) if role in fields.ids}
    if not special <= hidden:
        # One that text can spell, as a byte or by merges, is a token like any other.
        learned = {*BYTE_ALPHABET, *map("".join, merges)}
        hidden |= {i for i in special if names[i] not in learned}
    controls = {names[i]: i for i in sorted(hidden)}
    added = [
        name
        for name, kind in zip(names, kinds, strict=True)
        if kind is Kind.USER_DEFINED and name not in controls
    ]
    codec, vocabulary = byte_level_bpe(
        "GGUF", names, merges, controls=controls, added=added, splitting=splitting
    )
    # add_space_prefix is SentencePiece's, and llama.cpp, which defines the format, reads it there.
    return fields.finish(Tokenizer(vocabulary, codec, adds_bos=splitting.adds_bos))


def _merges(lines: list[str]) -> list[tuple[str, str]]:
    """The pairs, best first."""
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    for line, (left, right) in zip(lines, merges, strict=True):
        if not left or not right or " " in right:
            raise DataError("GGUF", f"{PREFIX}merges", got=repr(line), want="two pieces each")
    return merges


def _sentencepiece(fields: _Fields) -> Tokenizer:
    names, kinds = fields.tokens()
    # SentencePiece wants one unknown token. Some files call unused ids unknown, or it a control.
    kinds = [Kind.CONTROL if kind is Kind.UNKNOWN else kind for kind in kinds]
    unknown = fields.ids.get("unknown", 0)
    if kinds[unknown] is not Kind.CONTROL:
        raise DataError("GGUF", f"{PREFIX}token_type: no unknown token", got=names[unknown])
    kinds[unknown] = Kind.UNKNOWN
    scores = fields.array("scores", float)
    if len(scores) != len(names):
        raise DataError("GGUF", f"{PREFIX}scores", got=len(scores), want=len(names))
    pieces = [Piece(*piece) for piece in zip(names, scores, kinds, strict=True)]
    has_prefix = fields.flag("add_space_prefix", default=True)
    model = spm_model("GGUF", pieces, dummy_prefix=has_prefix)
    vocabulary = spm_vocabulary("GGUF", pieces, strip=Strip.ONE if has_prefix else Strip.NONE)
    # As llama.cpp does it, a text after a control token gets its space too.
    codec = SpmCodec("GGUF", model, prefix="always")
    tokenizer = Tokenizer(vocabulary, codec, bos_id=1, eos_ids=(2,), adds_bos=True)
    return fields.finish(tokenizer)


@dataclass(frozen=True)
class _Fields:
    """Metadata, each field read as what it must be."""

    fields: Mapping[str, object]

    def text(self, key: str) -> str | None:
        value = self.fields.get(key)
        if value is not None and not isinstance(value, str):
            raise DataError("GGUF", f"{key}: not a text", got=type(value).__name__)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.fields.get(PREFIX + key, default)
        if not isinstance(value, (bool, int, np.bool_)):
            raise DataError("GGUF", f"{PREFIX}{key}: not a flag", got=type(value).__name__)
        return bool(value)

    def array(self, key: str, kind: type[Scalar]) -> list[Scalar]:
        value = self.fields.get(PREFIX + key)
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, (list, tuple)):
            got = "none" if value is None else type(value).__name__
            raise DataError("GGUF", f"{PREFIX}{key}: not an array", got=got)
        others = set(map(type, items)) - {kind, int if kind is float else kind}
        if others:
            got = ", ".join(sorted(other.__name__ for other in others))
            raise DataError("GGUF", f"{PREFIX}{key}", got=got, want=f"only {kind.__name__}")
        return list(map(kind, items))

    def tokens(self) -> tuple[list[str], list[Kind]]:
        """The names, each there once, and what each token is: normal where the file is silent."""
        names = self.array("tokens", str)
        index("GGUF", names)
        if PREFIX + "token_type" not in self.fields:
            return names, [Kind.NORMAL] * len(names)
        numbers = self.array("token_type", int)
        if len(numbers) != len(names) or not set(numbers) <= set(Kind):
            got = f"{len(numbers)} of {sorted(set(numbers))[:8]}"
            raise DataError("GGUF", f"{PREFIX}token_type", got=got, want=f"{len(names)} of 1 to 6")
        kinds = {int(kind): kind for kind in Kind}
        return names, [kinds[number] for number in numbers]

    @cached_property
    def ids(self) -> dict[str, int]:
        """The ids of special tokens by role, of those that the file names."""
        count = len(self.array("tokens", str))
        found: dict[str, int] = {}
        for role in dict.fromkeys((*_NAMED, *_ENDS)):
            key = f"{PREFIX}{role}_token_id"
            token = integer("GGUF", self.fields, key)
            if token is not None and not 0 <= token < count:
                raise DataError("GGUF", key, got=token, want=f"0 to {count - 1}")
            if token is not None:
                found[role] = token
        return found

    def finish(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the special tokens and the chat template that the file gives."""
        ids = self.ids
        bos = ids.get("bos", tokenizer.bos_id)
        adds_bos = self.flag("add_bos_token", default=tokenizer.adds_bos)
        if adds_bos and bos is None:
            raise DataError("GGUF", f"{PREFIX}add_bos_token: there is no BOS", want="its id")
        ends = tuple(dict.fromkeys(ids[role] for role in _ENDS if role in ids))
        roles = {"bos": bos, **ids}
        template = self.text("tokenizer.chat_template")
        return replace(
            tokenizer,
            bos_id=bos,
            eos_ids=ends or tokenizer.eos_ids,
            adds_bos=adds_bos,
            template=None if template is None else ChatTemplate(template),
            names={
                f"{_IN_TEMPLATES.get(role, role)}_token": tokenizer.vocabulary.name(token)
                for role, token in roles.items()
                if token is not None
            },
        )
