"""Byte-level BPE: GPT-2's scheme and its descendants, from merges and a rule to split words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from orion_ane.text.codec import Aliases, LibraryCodec, library_errors
from orion_ane.text.vocabulary import BYTE_ALPHABET, Vocabulary, byte_level

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Splitting:
    """How text is cut into the words inside which pieces are merged.

    Attributes:
        digits: each digit is a word of its own, before GPT-2's rule.
        pattern: a rule other than GPT-2's.
        whole_words: a word that is a token becomes it, whatever the merges say.
        normal_form: Unicode composition before all else.
        adds_bos: whether text starts with BOS where the file does not say.
    """

    digits: bool = False
    pattern: str | None = None
    whole_words: bool = False
    normal_form: Literal["NFC"] | None = None
    adds_bos: bool = False


GPT2 = Splitting()
_LLAMA3 = Splitting(
    pattern=rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}", whole_words=True, adds_bos=True
)
_QWEN2 = Splitting(pattern=rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}", normal_form="NFC")

# The names that GGUF files give, `tokenizer.ggml.pre`. Only rules that could be held against the
# model family's own tokenizer or published ids stand here; another name is refused.
SPLITTINGS: Mapping[str, Splitting] = {
    "gpt-2": GPT2,
    "smollm": Splitting(digits=True),
    "starcoder": Splitting(digits=True),
    "refact": Splitting(digits=True),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def byte_level_bpe(
    where: str,
    names: Sequence[str | None],
    merges: Iterable[tuple[str, str]],
    *,
    controls: Mapping[str, int],
    added: Sequence[str] = (),
    splitting: Splitting = GPT2,
) -> tuple[LibraryCodec, Vocabulary]:
    """A codec and its vocabulary.

    Args:
        where: the file, for messages.
        names: the tokens in the byte alphabet, by id, checked.
        merges: pairs of pieces, best first.
        controls: the ids of control tokens by name.
        added: tokens that are found in any text, whatever the merges say.
        splitting: how text is cut into words.

    Raises:
        DataError: a merge of unknown pieces, or one that makes a control token.
    """
    ids = {name: i for i, name in enumerate(names) if name is not None and name not in controls}
    absent = frozenset(byte for byte, char in enumerate(BYTE_ALPHABET) if char not in ids)
    aliases = Aliases.beside(where, ids)
    ids |= {aliases.of(token): token for token in controls.values()}
    special = [aliases.of(token) for token in controls.values()]
    with library_errors(where, "not a table of merges"):
        library = library_of(ids, merges, added=added, special=special, splitting=splitting)
    literal = {*added, *controls}
    pieces = tuple(
        None if name is None else name.encode() if name in literal else byte_level(name)
        for name in names
    )
    return LibraryCodec(library, aliases, absent), Vocabulary(pieces, controls)


def library_of(
    ids: Mapping[str, int],
    merges: Iterable[tuple[str, str]],
    *,
    added: Sequence[str],
    special: Sequence[str],
    splitting: Splitting,
) -> Library:
    """The library's tokenizer of such a vocabulary.

    Args:
        ids: all tokens, added and special ones among them.
        merges: pairs of pieces, best first.
        added: tokens that are found in any text, whatever the merges say.
        special: such as are control tokens.
        splitting: how text is cut into words.
    """
    library = Library(models.BPE(dict(ids), list(merges), ignore_merges=splitting.whole_words))
    library.pre_tokenizer = _pre_tokenizer(splitting)
    if splitting.normal_form:
        library.normalizer = normalizers.NFC()
    library.add_tokens([AddedToken(name, normalized=False) for name in added])
    library.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    return library


def _pre_tokenizer(splitting: Splitting) -> pre_tokenizers.PreTokenizer:
    steps: list[pre_tokenizers.PreTokenizer] = []
    if splitting.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.pattern:
        steps.append(pre_tokenizers.Split(Regex(splitting.pattern), "isolated"))
    is_gpt2 = splitting.pattern is None
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=is_gpt2))
    return pre_tokenizers.Sequence(steps)
