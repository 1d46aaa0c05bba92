"""What holds for every tokenizer, whatever it was read from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from vocabularies import gguf_bpe

from orion_ane.errors import DataError
from orion_ane.text import Tokenizer, from_gguf

same_fixture = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# U+2581 is how SentencePiece writes a space: its own encoding loses the difference.
UNICODE = st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")
FRAGMENTS = (
    "<s> </s> <unk> <0x41> <think> <s > \uffff \uffff0; \uffff\uffff1; \ufdd0 \ufffd \0 é 😀"
)
WORDS = st.sampled_from([*FRAGMENTS.split(" "), " ", "\n", "Once", " upon", "it's", "12"])
texts = st.lists(st.one_of(WORDS, st.text(UNICODE, max_size=8)), max_size=8).map("".join)


def loses_spaces(tokenizer: Tokenizer, text: str) -> bool:
    """The library's Metaspace puts no space before a text that has one, and decoding takes it."""
    return tokenizer.encode(" a") == tokenizer.encode("a") and text.startswith(" ")


@same_fixture
@given(text=texts)
@example(text="")
@example(text="  ")
@example(text="a  b\n\n c\t")
@example(text="e\u0301 é ﬁ")
def test_decoding_undoes_encoding(text, tokenizer):
    if not loses_spaces(tokenizer, text):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@same_fixture
@given(text=texts)
def test_T09_plain_text_never_yields_a_control_token(text, tokenizer):
    assert tokenizer.vocabulary.hidden.isdisjoint(tokenizer.encode(text))


@same_fixture
@given(parts=st.lists(st.one_of(st.sampled_from(["<s>", "</s>"]), texts), max_size=5))
def test_control_tokens_come_where_they_are_named_when_asked_for(parts, tokenizer):
    controls = tokenizer.vocabulary.controls
    text = "".join(parts)
    ids = tokenizer.encode(text, specials=True)
    named = [token for token in ids if token in tokenizer.vocabulary.hidden]
    assert [list(controls)[list(controls.values()).index(token)] for token in named] == [
        match[0] for match in tokenizer._controls.finditer(text)
    ]


@same_fixture
@given(text=texts)
def test_decoding_with_names_undoes_encoding_with_names(text, tokenizers):
    for kind in ("tokenizer.json", "gpt2", "gguf gpt2", "sentencepiece", "llama2c"):
        ids = tokenizers[kind].encode(text, specials=True)
        assert tokenizers[kind].decode(ids, specials=True) == text


def test_no_text_has_no_tokens(tokenizer):
    assert tokenizer.encode("") == []
    assert tokenizer.encode("", specials=True) == []
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "😀\ud83d"])
def test_a_lone_surrogate_is_refused(text, tokenizer):
    with pytest.raises(DataError, match=r"encode: .*lone surrogate: got U\+D[8F]"):
        tokenizer.encode(text)


@pytest.mark.parametrize("token", [-1, 10**9])
def test_an_id_that_is_no_token_is_refused(token, tokenizer):
    with pytest.raises(DataError, match=f"no such token: got {token}, want 0 to"):
        tokenizer.decode([token])
    with pytest.raises(DataError, match="no such token"):
        tokenizer.stream().push(token)


def test_a_prompt_starts_with_bos_where_the_model_wants_one(tokenizer):
    ids = tokenizer.prompt_ids("Once upon")
    start = [tokenizer.bos_id] if tokenizer.adds_bos else []
    assert ids == start + tokenizer.encode("Once upon")
    if tokenizer.bos_id is not None:
        assert tokenizer.prompt_ids("") == [tokenizer.bos_id]


def test_an_empty_prompt_starts_from_the_end_where_there_is_no_bos(byte_level):
    assert replace(byte_level, bos_id=None, eos_ids=(1, 0), adds_bos=False).prompt_ids("") == [1]


def test_of_two_control_tokens_that_begin_alike_the_longer_is_meant():
    fields = gguf_bpe()
    fields["tokenizer.ggml.tokens"] += ["<s>x", "<s>x>"]
    fields["tokenizer.ggml.token_type"] += [3, 3]
    tokenizer = from_gguf(fields)
    last = tokenizer.vocab_size - 1
    assert tokenizer.encode("<s>x><s>x<s>", specials=True) == [last, last - 1, 0]


def test_an_empty_prompt_needs_a_token_to_start_from(tokenizers):
    tokenizer = tokenizers["metaspace"]
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, ())
    with pytest.raises(DataError, match="empty, and the model has no token to start from"):
        tokenizer.prompt_ids("")


def test_each_piece_prints_as_many_ids_as_there_are(tokenizer):
    assert tokenizer.vocab_size == len(tokenizer.vocabulary.pieces)
    whole = tokenizer.decode(range(tokenizer.vocab_size), specials=True)
    assert "<s>" in whole
    assert "the" in whole
