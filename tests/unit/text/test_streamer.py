"""Streams: what is pushed and flushed is what decoding the whole gives, and no sooner or later."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orion_ane.text import Streamer
from orion_ane.text.vocabulary import Strip, Vocabulary

same_fixture = settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# Ids by a share of the vocabulary, so that one strategy serves all; the low ones are the bytes.
shares = st.lists(st.one_of(st.floats(0, 0.999), st.floats(0, 0.6)), max_size=12)


def ids_of(tokenizer, shares):
    return [int(share * tokenizer.vocab_size) for share in shares]


def streamed(stream: Streamer, ids: list[int]) -> str:
    return "".join([stream.push(token) for token in ids]) + stream.flush()


@same_fixture
@given(shares=shares, specials=st.booleans())
def test_a_stream_is_the_decoded_text(shares, specials, tokenizer):
    ids = ids_of(tokenizer, shares)
    assert streamed(tokenizer.stream(specials=specials), ids) == tokenizer.decode(
        ids, specials=specials
    )


@same_fixture
@given(prefix=shares, shares=shares, specials=st.booleans())
def test_a_stream_after_a_prompt_is_what_the_prompt_lacks(prefix, shares, specials, tokenizer):
    prompt, new = ids_of(tokenizer, prefix), ids_of(tokenizer, shares)
    stream = tokenizer.stream(specials=specials, prefix_ids=prompt)
    seen = len(tokenizer.decode(prompt, specials=specials))
    assert streamed(stream, new) == tokenizer.decode(prompt + new, specials=specials)[seen:]


@same_fixture
@given(shares=shares)
def test_G09_each_character_comes_as_soon_as_it_is_whole(shares, tokenizer):
    ids = ids_of(tokenizer, shares)
    stream, text = tokenizer.stream(), ""
    for count, token in enumerate(ids, start=1):
        text += stream.push(token)
        whole = tokenizer.decode(ids[:count])
        assert whole in (text, text + "\ufffd")  # an unfinished character is one replacement
    assert text + stream.flush() == tokenizer.decode(ids)


@same_fixture
@given(raw=st.binary(max_size=12))
def test_bytes_become_what_utf8_makes_of_them(raw, tokenizers):
    for kind in ("gguf llama", "sentencepiece", "llama2c"):
        ids = [3 + byte for byte in raw]
        assert streamed(tokenizers[kind].stream(), ids) == raw.decode("utf-8", "replace")


def test_any_bytes_stream_as_they_decode_and_wait_only_for_what_could_finish():
    # One byte of each range of Unicode's table 3-7, and the edges between them.
    edges = b"A\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xe0\xe1\xed\xee\xf0\xf1\xf4\xf5"
    every_byte = Vocabulary(tuple(bytes([byte]) for byte in range(256)), {})
    for raw in itertools.product(edges, repeat=3):
        stream, text = Streamer(every_byte), ""
        for count, byte in enumerate(raw, start=1):
            text += stream.push(byte)
            seen = bytes(raw[:count])
            waits = seen.decode("utf-8", "replace") != text
            assert seen.decode("utf-8", "replace") == text + "\ufffd" * waits
            tails = (seen + tail for tail in (b"\x80", b"\x80\x80", b"\x80" * 3, b"\x90\x80\x80"))
            can_finish = any(_is_one_more(text, tail) for tail in (*tails, seen + b"\xa0\x80"))
            assert waits == can_finish
        assert text + stream.flush() == bytes(raw).decode("utf-8", "replace")


def _is_one_more(text: str, raw: bytes) -> bool:
    """Whether the bytes are this text and one whole character more, which is no replacement."""
    whole = raw.decode("utf-8", "replace")
    return whole[:-1] == text and whole[-1:] > "\x7f" and whole[-1:] != "\ufffd"


def test_only_the_first_token_of_the_whole_text_loses_its_space(spm):
    ids = spm.encode("the cat")
    assert spm.decode(ids) == "the cat"
    assert spm.decode(ids + ids) == "the cat the cat"
    stream = spm.stream(prefix_ids=spm.prompt_ids("the"))
    assert streamed(stream, spm.encode("cat")) == " cat"


def test_a_control_token_prints_nothing_and_ends_no_text(spm):
    cat = spm.encode("cat")
    assert spm.decode([1, *cat, 2]) == "cat"
    assert spm.decode([1, *cat, 2], specials=True) == "<s> cat</s>"
    assert streamed(spm.stream(), [1, *cat, 2]) == "cat"


def test_a_space_that_was_written_as_a_byte_stays(spm):
    assert spm.decode([3 + ord(" "), 3 + ord("x")]) == " x"


def test_spaces_go_until_something_is_printed_where_encoding_trims():
    pieces = (b" ", b" a", b"b")
    trims = Vocabulary(pieces, {}, strip=Strip.ALL)
    assert streamed(Streamer(trims), [0, 0, 1, 0, 2]) == "a b"
    one = Vocabulary(pieces, {}, strip=Strip.ONE)
    assert streamed(Streamer(one), [0, 0, 1, 0, 2]) == "  a b"
    none = Vocabulary(pieces, {})
    assert streamed(Streamer(none), [0, 1]) == "  a"


def test_a_stream_can_go_on_after_a_flush(byte_level):
    half, rest = byte_level.encode("é"[:1])[:1], byte_level.encode("Once")
    stream = byte_level.stream()
    assert stream.push(half[0]) + stream.flush() in ("\ufffd", "é")
    assert "".join(map(stream.push, rest)) == "Once"
