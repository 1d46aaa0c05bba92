from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import VOCAB, byte_tokenizer

from orion_ane.errors import ConfigError, DataError
from orion_ane.host.loss import IGNORED
from orion_ane.text import ChatTemplate, from_folder
from orion_ane.train.corpus import Tokens, read_tokens
from orion_ane.train.data import Batches, Windows

END = VOCAB - 1
TURNS = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A token a byte, whatever ends a text behind each document."""
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer(folder)
    return replace(from_folder(folder), eos_ids=(END,))


def stream(count, dtype=np.uint16, **options):
    return Tokens("stream", np.arange(count, dtype=dtype), **options)


def read(path, tokenizer, vocab=VOCAB):
    (found,) = read_tokens([path], tokenizer, vocab)
    return found


def learnt(tokens, tokenizer):
    """What is asked for, as text, the end token as a dot."""
    flags = np.ones(len(tokens.ids), bool) if tokens.learnt is None else tokens.learnt
    return said(tokens.ids[flags], tokenizer)


def said(ids, tokenizer):
    return "".join("." if i == END else tokenizer.decode([int(i)]) for i in ids)


def jsonl(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


# Windows and batches


def test_a_set_as_long_as_a_window_needs_one_token_more_D03():
    with pytest.raises(DataError, match=r"got 256 tokens, want at least 257 for `seq` 256"):
        Windows([stream(256)], 256)
    assert len(Windows([stream(257)], 256)) == 1


def test_a_run_goes_on_where_it_stood_C07():
    batches = Batches(Windows([stream(100)], 4), batch=1, shuffle=False)
    for _ in range(3):
        next(batches)
    again = Batches(Windows([stream(100)], 4), batch=1, shuffle=False)
    again.seek(json.loads(json.dumps(batches.cursor)))
    batch = next(again)
    assert batch.ids.tolist() == [[12, 13, 14, 15]]
    assert batch.targets.tolist() == [[13, 14, 15, 16]]


@given(
    count=st.integers(6, 80), seq=st.integers(1, 5), rows=st.integers(1, 9), seed=st.integers(0, 9)
)
def test_an_epoch_has_each_window_once_and_resumes_anywhere(count, seq, rows, seed):
    windows = Windows([stream(count)], seq)
    batches = Batches(windows, batch=rows, seed=seed)
    draws, cursors = [], []
    while len(draws) * rows < 2 * len(windows):
        cursors.append(batches.cursor)
        draws.append(next(batches).ids)
    firsts = np.concatenate(draws)[:, 0].tolist()
    every = {at * seq for at in range(len(windows))}
    assert set(firsts[: len(windows)]) == set(firsts[len(windows) : 2 * len(windows)]) == every
    for cursor, want in zip(cursors, draws, strict=True):
        again = Batches(windows, batch=rows, seed=seed)
        again.seek(cursor)
        assert np.array_equal(next(again).ids, want)


def test_epochs_and_seeds_have_orders_of_their_own():
    windows = Windows([stream(401)], 4)
    batches = Batches(windows, batch=100, seed=1)
    first, second = next(batches).ids, next(batches).ids
    assert batches.epoch == 2
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, next(Batches(windows, batch=100, seed=2)).ids)
    assert np.array_equal(first, next(Batches(windows, batch=100, seed=1)).ids)


def test_every_token_but_the_first_is_asked_for_once():
    windows = Windows([stream(23), stream(9)], 4)
    asked = Counter(
        int(t) for batch in windows.every(3) for t in batch.targets.ravel() if t != IGNORED
    )
    assert asked == Counter([*range(1, 23), *range(1, 9)])
    assert sum(batch.tokens for batch in windows.every(3)) == 22 + 8


def test_windows_stay_within_their_stretch():
    windows = Windows([stream(9), Tokens("b", np.arange(100, 109, dtype=np.uint32))], 4)
    rows = windows.batch(range(len(windows)))
    assert rows.ids[:, 0].tolist() == [0, 4, 100, 104]
    assert (rows.targets - rows.ids == 1).all()


@pytest.mark.parametrize("what", ["seed", "data", "windows", "shuffle"])
def test_a_place_in_other_data_is_refused(what):
    cursor = Batches(Windows([stream(100)], 4), batch=1).cursor
    other = {
        "seed": lambda: Batches(Windows([stream(100)], 4), batch=1, seed=1),
        "data": lambda: Batches(Windows([Tokens("x", stream(100).ids + 1)], 4), batch=1),
        "windows": lambda: Batches(Windows([stream(100)], 5), batch=1),
        "shuffle": lambda: Batches(Windows([stream(100)], 4), batch=1, shuffle=False),
    }[what]()
    with pytest.raises(ConfigError, match=f"whose {what} differ"):
        other.seek(cursor)


def test_settings_that_mean_nothing_are_refused():
    windows = Windows([stream(100)], 4)
    for wrong in ({"batch": 0}, {"batch": 1, "seed": -1}):
        with pytest.raises(ConfigError):
            Batches(windows, **wrong)
    batches = Batches(windows, batch=1)
    with pytest.raises(ConfigError, match="no such place"):
        batches.seek({**batches.cursor, "drawn": "3"})
    with pytest.raises(ConfigError, match="seq: no such length"):
        Windows([stream(100)], 0)
    with pytest.raises(DataError, match="no tokens"):
        Windows([], 4)
    with pytest.raises(DataError, match="no files"):
        read_tokens([], None, VOCAB)


# Token files


@pytest.mark.parametrize("size", [0, 5])
def test_a_file_that_is_not_whole_ids_is_refused_D09(size, tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(DataError, match=f"x.bin: not whole ids: got {size} bytes, want a mult"):
        read(path, None)


@pytest.mark.parametrize(("suffix", "dtype"), [("bin", "<u2"), ("u16", "<u2"), ("u32", "<u4")])
def test_token_files_are_mapped_as_they_are(suffix, dtype, tmp_path):
    path = tmp_path / f"x.{suffix}"
    np.arange(200, dtype=dtype).tofile(path)
    found = read(path, None)
    assert found.ids.tolist() == list(range(200))
    assert found.ids.dtype == np.dtype(dtype)
    assert not found.ids.flags.owndata


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    path = tmp_path / "x.bin"
    np.array([70000, 5], "<u4").tofile(path)
    assert read(path, None, vocab=1 << 17).ids.tolist() == [70000, 5]


def test_an_id_of_another_vocabulary_is_named_with_its_place(tmp_path):
    path = tmp_path / "x.bin"
    np.array([1, 2, 600, 3], "<u2").tofile(path)
    with pytest.raises(DataError, match=r"token 2: no such id: got 600, want 0 to 511(?s:.*)\.u32"):
        read(path, None, vocab=512)


def test_files_that_are_not_there_are_named(tmp_path, tokenizer):
    for name in ("x.bin", "x.txt", "x.jsonl"):
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            read(tmp_path / name, tokenizer)


# Text


def test_documents_of_a_text_end_with_the_end_token(tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    path.write_text("\ufeffone\n\ntwo\n<|endoftext|>\n\n<|endoftext|>\nthree\n", encoding="utf-8")
    found = read(path, tokenizer)
    assert said(found.ids, tokenizer) == "one\n\ntwo.three."
    assert found.learnt is None
    assert found.ids.dtype == np.uint16


def test_documents_start_with_what_prompts_start_with(tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    path.write_text("a")
    starting = replace(tokenizer, bos_id=END, adds_bos=True, eos_ids=())
    assert said(read(path, starting).ids, tokenizer) == ".a"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"<|endoftext|>\n\n<|endoftext|>\n"])
def test_a_text_with_nothing_in_it_says_so(content, tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.txt: nothing to learn"):
        read(path, tokenizer)


def test_text_that_is_not_utf_8_is_named_with_its_byte(tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    path.write_bytes(b"abc\xff")
    with pytest.raises(DataError, match=r"x\.txt, byte 3: not UTF-8"):
        read(path, tokenizer)
    with pytest.raises(DataError, match="no tokenizer"):
        read(path, None)


def test_a_tokenizer_of_another_model_is_refused(tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    path.write_text("zzz")
    with pytest.raises(DataError, match=r"not the model's tokenizer: got id 256"):
        read(path, tokenizer, vocab=200)


# jsonl


def test_rows_of_text_are_documents(tmp_path, tokenizer):
    path = jsonl(tmp_path, {"text": "one", "id": 7}, "", "  ", {"text": " "}, {"text": "two"})
    assert said(read(path, tokenizer).ids, tokenizer) == "one.two."


def test_a_prompt_is_read_and_not_learnt(tmp_path, tokenizer):
    path = jsonl(tmp_path, {"prompt": "2+2=", "completion": "4"}, {"prompt": "", "completion": "x"})
    found = read(path, tokenizer)
    assert said(found.ids, tokenizer) == "2+2=4.x."
    assert learnt(found, tokenizer) == "4.x."
    batch = Windows([found], 7).batch([0])
    assert said(batch.targets[batch.targets != IGNORED], tokenizer) == "4.x."


def test_an_assistants_turns_are_learnt(tmp_path, tokenizer):
    talk = [("system", "S"), ("user", "hi"), ("assistant", "yo"), ("user", "?"), ("assistant", "!")]
    messages = [{"role": role, "content": content} for role, content in talk]
    chatty = replace(tokenizer, template=ChatTemplate(TURNS))
    found = read(jsonl(tmp_path, {"messages": messages}), chatty)
    assert said(found.ids, tokenizer).startswith("<system>S;<user>hi;<assistant>yo;")
    assert learnt(found, tokenizer) == "yo;!;"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "rows.jsonl:2: not JSON"),
        ("[1]", "rows.jsonl:2: no such row: got list"),
        ({"txt": "a"}, r"rows.jsonl:2: no such row: got \['txt'\], want text, prompt and"),
        ({"text": "a", "prompt": "b"}, "rows.jsonl:2: no such row"),
        ({"prompt": "a"}, "rows.jsonl:2: no such row"),
        ({"text": 3}, "rows.jsonl:2: text is no text: got int"),
        ({"text": "\ud800"}, "rows.jsonl:2: "),
        ({"messages": [{"role": "user"}]}, "rows.jsonl:2: messages are no conversation"),
        ({"messages": "hi"}, "rows.jsonl:2: messages are no conversation"),
        ({"messages": [{"role": "user", "content": "a"}]}, "rows.jsonl:2: chat: the model has no"),
    ],
)
def test_a_broken_row_is_named_by_its_line(row, message, tmp_path, tokenizer):
    with pytest.raises(DataError, match=message):
        read(jsonl(tmp_path, {"text": "ok"}, row), tokenizer)


def test_prompts_alone_teach_nothing(tmp_path, tokenizer):
    chatty = replace(tokenizer, template=ChatTemplate(TURNS))
    row = {"messages": [{"role": "user", "content": "a"}]}
    with pytest.raises(DataError, match="nothing to learn: got prompts alone"):
        read(jsonl(tmp_path, row), chatty)


def test_several_files_are_read_together(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("a")
    rows = jsonl(tmp_path, {"prompt": "p", "completion": "c"})
    np.arange(9, dtype="<u2").tofile(tmp_path / "t.bin")
    files = [tmp_path / "t.bin", tmp_path / "a.txt", rows]
    text, tokens = read_tokens(files, tokenizer, VOCAB)
    assert said(text.ids, tokenizer) == "a.pc."
    assert learnt(text, tokenizer) == "a.c."
    assert len(tokens.ids) == 9
