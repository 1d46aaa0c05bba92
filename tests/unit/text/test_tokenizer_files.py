"""llama2.c, GPT-2 and SentencePiece files: what they mean, and every kind of damage refused."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabularies import byte_level_json, llama2c_bytes, llama2c_rows, sentencepiece_model, write

from orion_ane.errors import DataError
from orion_ane.text import (
    from_gpt2_files,
    from_gpt2_merges,
    from_llama2c,
    from_sentencepiece,
    from_tokenizer_json,
)


@pytest.fixture
def rows():
    return llama2c_rows()


def load_llama2c(tmp_path, data: bytes, vocab_size: int = 420):
    write(tmp_path, {"tokenizer.bin": data})
    return from_llama2c(tmp_path / "tokenizer.bin", vocab_size)


def test_llama2c_gives_the_ids_of_the_model_it_was_exported_from(tmp_path, rows):
    write(tmp_path, {"tokenizer.model": sentencepiece_model()})
    original = from_sentencepiece(tmp_path / "tokenizer.model")
    exported = load_llama2c(tmp_path, llama2c_bytes(rows))
    for text in ("the cat", "  a\n", "", "Привет 你好 😀", "<s></s><0x41>"):
        assert exported.prompt_ids(text) == original.prompt_ids(text)


def test_llama2c_knows_spaces_from_the_sign_that_stands_for_them(tmp_path, rows):
    tokenizer = load_llama2c(tmp_path, llama2c_bytes(rows))
    ids = tokenizer.encode("a\u2581b")
    assert [3 + byte for byte in "\u2581".encode()] == ids[-4:-1]
    assert tokenizer.decode(ids) == "a\u2581b"


def test_S07_older_exports_that_wrote_raw_bytes_mean_bytes_too(tmp_path, rows):
    older = [
        (chr(i - 3).encode() if 3 <= i < 259 else text, score)
        for i, (text, score) in enumerate(rows)
    ]
    newer = load_llama2c(tmp_path, llama2c_bytes(rows))
    tokenizer = load_llama2c(tmp_path, llama2c_bytes(older))
    assert tokenizer.encode("A\x00b\n") == newer.encode("A\x00b\n")
    assert tokenizer.decode([3 + 0x41]) == "A"


def test_llama2c_cut_anywhere_is_refused(tmp_path, rows):
    whole = llama2c_bytes(rows)
    for length in [*range(24), *range(24, len(whole), 101), len(whole) - 1]:
        with pytest.raises(DataError, match=r"cut off|is damaged"):
            load_llama2c(tmp_path, whole[:length])


@pytest.mark.parametrize("vocab_size", [419, 421])
def test_llama2c_of_another_size_than_the_checkpoint_is_refused(vocab_size, tmp_path, rows):
    with pytest.raises(DataError, match=r"bytes left over: .*\n  hint|cut off: got 420 pieces"):
        load_llama2c(tmp_path, llama2c_bytes(rows), vocab_size)


@pytest.mark.parametrize("vocab_size", [-1, 0, 258, 1 << 40])
def test_absurd_vocabulary_sizes_are_refused(vocab_size, tmp_path, rows):
    with pytest.raises(DataError, match=f"vocabulary size: got {vocab_size}, want 259 to"):
        load_llama2c(tmp_path, llama2c_bytes(rows), vocab_size)


@pytest.mark.parametrize("longest", [0, -1, 1 << 30])
def test_an_absurd_longest_piece_is_refused(longest, tmp_path, rows):
    data = struct.pack("<i", longest) + llama2c_bytes(rows)[4:]
    with pytest.raises(DataError, match=f"longest piece: got {longest}, want 1 to"):
        load_llama2c(tmp_path, data)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((b"", 0.0), "piece 300 is damaged: got 0 bytes"),
        ((b"x" * 99, 0.0), "piece 300 is damaged: got 99 bytes, score 0.0, want 1 to 6"),
        ((b"xyz", float("nan")), "piece 300 is damaged: got 3 bytes, score nan"),
        ((b"xyz", float("inf")), "piece 300 is damaged"),
        ((b"\xff", 0.0), "piece 300 is not UTF-8"),
        ((b"a", 0.0), "a token is there twice: got 'a'"),
    ],
)
def test_damaged_pieces_are_refused_by_number(row, words, tmp_path, rows):
    longest = max(len(text) for text, _ in rows)
    rows[300] = row
    with pytest.raises(DataError, match=words):
        load_llama2c(tmp_path, llama2c_bytes(rows, longest))


def test_a_byte_id_that_is_no_byte_is_refused(tmp_path, rows):
    rows[70] = (b"x", 0.0)
    with pytest.raises(DataError, match="id 70 is not a byte: got b'x', want <0x43>"):
        load_llama2c(tmp_path, llama2c_bytes(rows))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 5000), byte=st.integers(0, 255))
def test_llama2c_with_any_byte_changed_is_read_or_refused(at, byte, tmp_path):
    data = bytearray(llama2c_bytes(llama2c_rows()))
    data[at % len(data)] = byte
    try:
        tokenizer = load_llama2c(tmp_path, bytes(data))
    except DataError:
        return
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"


def test_merges_may_begin_with_a_hash_and_only_the_first_line_is_a_comment(tmp_path):
    write(tmp_path, {"merges.txt": "#version: 0.2\n# #\n## #\nt h\n"})
    tokenizer = from_gpt2_merges(tmp_path / "merges.txt")
    assert tokenizer.vocab_size == 256 + 3 + 1
    assert tokenizer.encode("###") == [257]
    assert tokenizer.bos_id == 259
    write(tmp_path, {"merges.txt": "# #\r\nt h\r\n"})
    assert from_gpt2_merges(tmp_path / "merges.txt").encode("##th") == [256, 257]


@pytest.mark.parametrize(
    ("merges", "words"),
    [
        ("", "merges: got 0, want 1 to"),
        ("#version: 0.2\n", "merges: got 0"),
        ("#version: 0.2\nt h e\n", "merges.txt:2: not a merge: got 't h e', want two pieces"),
        ("t h\nth\n", "merges.txt:2: not a merge: got 'th'"),
        ("t h\n e\n", "merges.txt:2: not a merge: got ' e'"),
        ("t h\nt h\n", "a token is there twice: got 'th': 256 and 257"),
        ("t h\nthe y\n", "not a table of merges: got Exception: .*the"),
        (b"\xff h\n", "not UTF-8: got byte 0"),
    ],
)
def test_damaged_merges_are_refused_with_their_line(merges, words, tmp_path):
    write(tmp_path, {"merges.txt": merges})
    with pytest.raises(DataError, match=words):
        from_gpt2_merges(tmp_path / "merges.txt")


@pytest.mark.parametrize(
    ("vocab", "words"),
    [
        ({}, "not a table of merges"),
        ({"a": "b"}, "'a' has no id: got 'b', want a number"),
        ({"a": True}, "'a' has no id"),
        ({"a": 1.5}, "'a' has no id"),
        ({"a": -1}, "id out of range: got -1"),
        ({"a": 1 << 33}, "id out of range: got 8589934592"),
        ({"a": 0, "b": 0}, "two tokens have one id: got 'a' and 'b': 0"),
        ({"a": 0, "": 1}, "lengths of tokens: got 0 to 1"),
        ({"a" * 70000: 0}, "lengths of tokens: got 70000"),
        ([], "not a JSON object: got list"),
    ],
)
def test_damaged_vocabularies_are_refused(vocab, words, tmp_path):
    write(tmp_path, {"vocab.json": json.dumps(vocab), "merges.txt": "t h\n"})
    with pytest.raises(DataError, match=words):
        from_gpt2_files(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_ids_may_leave_gaps_and_a_gap_is_no_token(tmp_path):
    vocab = json.loads(byte_level_json())["model"]["vocab"]
    vocab["<|extra|>"] = 1000
    write(tmp_path, {"vocab.json": vocab, "merges.txt": "#version: 0.2\nO n\n"})
    tokenizer = from_gpt2_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert tokenizer.vocab_size == 1001
    assert tokenizer.encode("<|extra|>", specials=True) == [1000]
    with pytest.raises(DataError, match="no such token: got 999"):
        tokenizer.decode([999])


def test_missing_files_are_refused_by_name(tmp_path):
    write(tmp_path, {"vocab.json": {"a": 0}})
    with pytest.raises(DataError, match=r"merges\.txt: cannot be read: got No such file"):
        from_gpt2_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(DataError, match=r"tokenizer\.bin: cannot be read"):
        from_llama2c(tmp_path / "tokenizer.bin", 420)
    with pytest.raises(DataError, match="cannot be read: got Is a directory"):
        from_sentencepiece(tmp_path)


def test_an_absurdly_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="too large: got 1099511627776 bytes"):
        from_tokenizer_json(path)


@pytest.mark.parametrize("data", [b"", b"\x00", b"{}", b"\xff" * 99, b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_sentencepiece_model_is_refused(data, tmp_path):
    write(tmp_path, {"tokenizer.model": data})
    with pytest.raises(DataError, match=r"tokenizer\.model: not a SentencePiece model"):
        from_sentencepiece(tmp_path / "tokenizer.model")


def test_sentencepiece_cut_anywhere_is_refused(tmp_path):
    whole = sentencepiece_model()
    for length in range(1, len(whole), 251):
        write(tmp_path, {"tokenizer.model": whole[:length]})
        with pytest.raises(DataError, match="not a SentencePiece model"):
            from_sentencepiece(tmp_path / "tokenizer.model")


def test_sentencepiece_that_ends_words_with_spaces_is_refused(tmp_path):
    write(tmp_path, {"tokenizer.model": sentencepiece_model(treat_whitespace_as_suffix=True)})
    with pytest.raises(DataError, match="spaces follow their words"):
        from_sentencepiece(tmp_path / "tokenizer.model")
