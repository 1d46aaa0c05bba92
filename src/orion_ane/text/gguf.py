"""The tokenizer inside a GGUF file's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from tokenizers import decoders, processors

from orion_ane.errors import DataError
from orion_ane.text.bpe import SPLITTINGS, Splitting, byte_level_bpe, library_of
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
    if found.is_byte_level:
        table = _byte_level(found)
        codec, vocabulary = byte_level_bpe(
            "GGUF",
            table.names,
            table.merges,
            controls=table.controls,
            added=table.added,
            splitting=table.splitting,
        )
        # add_space_prefix is SentencePiece's; llama.cpp, which defines the format, reads it there.
        return found.finish(Tokenizer(vocabulary, codec, adds_bos=table.splitting.adds_bos))
    pieces, has_prefix = _pieces(found)
    model = spm_model("GGUF", pieces, dummy_prefix=has_prefix)
    vocabulary = spm_vocabulary("GGUF", pieces, strip=Strip.ONE if has_prefix else Strip.NONE)
    # As llama.cpp does it, a text after a control token gets its space too.
    sentencepiece = SpmCodec("GGUF", model, prefix="always")
    return found.finish(Tokenizer(vocabulary, sentencepiece, bos_id=1, eos_ids=(2,), adds_bos=True))


def files_from_gguf(fields: Mapping[str, object]) -> dict[str, bytes]:
    """The same tokenizer as files of a Hugging Face folder, by name.

    Args:
        fields: as for `from_gguf`.

    Raises:
        DataError: as `from_gguf`.
    """
    found, tokenizer = _Fields(fields), from_gguf(fields)
    controls = tokenizer.vocabulary.controls
    roles = ("bos_token", "eos_token", "unk_token", "pad_token")
    config: dict[str, object] = {
        # A token that text can spell is none that a reader may keep out of text.
        **{r: n for r, n in tokenizer.names.items() if r in roles and n in controls},
        "add_bos_token": tokenizer.adds_bos,
        "clean_up_tokenization_spaces": False,
    }
    if template := found.text("tokenizer.chat_template"):
        config["chat_template"] = template
    if found.is_byte_level:
        table = _byte_level(found)
        library = library_of(
            {name: i for i, name in enumerate(table.names)},
            table.merges,
            added=table.added,
            special=list(table.controls),
            splitting=table.splitting,
        )
        library.decoder = decoders.ByteLevel()
        if tokenizer.adds_bos:
            bos = tokenizer.names["bos_token"]
            library.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", special_tokens=[(bos, table.controls[bos])]
            )
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        files = {"tokenizer.json": library.to_str(pretty=True).encode()}
    else:
        pieces, has_prefix = _pieces(found)
        config |= {"tokenizer_class": "LlamaTokenizer", "legacy": True}
        if not has_prefix:
            config["add_prefix_space"] = False
        files = {"tokenizer.model": spm_model("GGUF", pieces, dummy_prefix=has_prefix)}
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    return {**files, "tokenizer_config.json": text.encode()}


class _Table(NamedTuple):
    """A byte-level vocabulary; as for `byte_level_bpe`."""

    names: list[str]
    merges: list[tuple[str, str]]
    controls: dict[str, int]
    added: list[str]
    splitting: Splitting


def _byte_level(fields: _Fields) -> _Table:
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
    return _Table(names, merges, controls, added, splitting)


def _merges(lines: list[str]) -> list[tuple[str, str]]:
    """The pairs, best first."""
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    for line, (left, right) in zip(lines, merges, strict=True):
        if not left or not right or " " in right:
            raise DataError("GGUF", f"{PREFIX}merges", got=repr(line), want="two pieces each")
    return merges


def _pieces(fields: _Fields) -> tuple[list[Piece], bool]:
    """The pieces of a SentencePiece vocabulary, and whether a text begins with a space."""
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
    return pieces, fields.flag("add_space_prefix", default=True)


@dataclass(frozen=True)
class _Fields:
    """Metadata, each field read as what it must be."""

    fields: Mapping[str, object]

    @property
    def is_byte_level(self) -> bool:
        """Whether the vocabulary is of bytes, as GPT-2's, or else SentencePiece's."""
        model = self.text(f"{PREFIX}model")
        if model not in ("gpt2", "llama"):
            raise DataError("GGUF", f"{PREFIX}model", got=model or "none", want="gpt2 or llama")
        return model == "gpt2"

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
