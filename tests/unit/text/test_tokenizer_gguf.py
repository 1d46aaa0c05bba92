"""GGUF metadata: both kinds of vocabulary, by what the fields say."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle
from vocabularies import gguf_bpe, gguf_spm

from orion_ane.errors import DataError
from orion_ane.text import files_from_gguf, from_folder, from_gguf
from orion_ane.text.bpe import SPLITTINGS

P = "tokenizer.ggml."


def test_arrays_may_be_lists_tuples_or_numpy_arrays():
    fields = gguf_spm()
    fields[P + "scores"] = np.array(fields[P + "scores"], np.float32)
    fields[P + "token_type"] = np.array(fields[P + "token_type"], np.int32)
    fields[P + "tokens"] = tuple(fields[P + "tokens"])
    assert from_gguf(fields).encode("the cat") == from_gguf(gguf_spm()).encode("the cat")


def test_other_fields_of_the_file_are_let_be():
    fields = gguf_bpe() | {"general.architecture": "llama", "llama.block_count": 3}
    assert from_gguf(fields).encode("a")


def test_special_tokens_are_where_the_file_says():
    fields = gguf_bpe() | {P + "eot_token_id": 0, P + "padding_token_id": 1}
    tokenizer = from_gguf(fields)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (0, (1, 0), False)
    assert tokenizer.names == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "eot_token": "<s>",
        "pad_token": "</s>",
    }


@pytest.mark.parametrize("kind", [gguf_bpe, gguf_spm])
@pytest.mark.parametrize("flag", [True, False, np.bool_(True), 1, 0])
def test_the_file_says_whether_prompts_start_with_bos(kind, flag):
    tokenizer = from_gguf(kind() | {P + "add_bos_token": flag})
    assert (tokenizer.prompt_ids("a")[0] == tokenizer.bos_id) == bool(flag)


def test_sentencepiece_adds_bos_unless_told_otherwise_and_llama3_too():
    assert from_gguf(gguf_spm()).adds_bos
    assert not from_gguf(gguf_bpe()).adds_bos
    assert from_gguf(gguf_bpe() | {P + "pre": "llama-bpe"}).adds_bos


def test_without_a_space_prefix_text_gets_none_and_loses_none():
    tokenizer = from_gguf(gguf_spm() | {P + "add_space_prefix": False})
    assert tokenizer.decode(tokenizer.encode(" the cat")) == " the cat"
    assert tokenizer.encode(" the cat") == from_gguf(gguf_spm()).encode("the cat")


def test_a_text_after_a_control_token_gets_its_space_too():
    tokenizer = from_gguf(gguf_spm())
    cat = tokenizer.encode("cat")
    assert tokenizer.encode("cat</s>cat", specials=True) == [*cat, 2, *cat]


def test_digits_stand_alone_where_the_rule_says_so():
    merged = gguf_bpe()
    merged[P + "tokens"] += ["12", "123"]
    merged[P + "token_type"] += [1, 1]
    merged[P + "merges"] += ["1 2", "12 3"]
    last = len(merged[P + "tokens"]) - 1
    assert from_gguf(merged).encode("123") == [last]
    assert len(from_gguf(merged | {P + "pre": "smollm"}).encode("123")) == 3
    assert from_gguf(merged | {P + "pre": "llama-bpe"}).encode("123") == [last]
    assert len(from_gguf(merged | {P + "pre": "qwen2"}).encode("123")) == 3


def test_a_whole_word_that_is_a_token_needs_no_merges_where_the_rule_says_so():
    fields = gguf_bpe()
    fields[P + "tokens"] += ["zebra"]
    fields[P + "token_type"] += [1]
    assert len(from_gguf(fields).encode("zebra")) > 1
    llama3 = from_gguf(fields | {P + "pre": "llama-bpe"})
    assert llama3.encode("zebra") == [len(fields[P + "tokens"]) - 1]
    named = fields | {P + "pre": "llama-bpe", P + "token_type": [*fields[P + "token_type"][:-1], 3]}
    assert len(from_gguf(named).encode("zebra")) > 1  # unless it is a control token: T09


def test_a_token_that_was_added_is_found_in_any_text_and_prints_as_it_is_spelled():
    fields = gguf_bpe()
    fields[P + "tokens"] += ["«é x»", "   "]
    fields[P + "token_type"] += [4, 4]
    tokenizer = from_gguf(fields)
    last = tokenizer.vocab_size - 1
    assert tokenizer.encode("a«é x»   b")[1:3] == [last - 1, last]
    assert tokenizer.decode([last - 1, last]) == "«é x»   "


@pytest.mark.parametrize("kind", [gguf_bpe, gguf_spm])
def test_a_control_token_prints_as_it_is_spelled(kind):
    fields = kind()
    fields[P + "tokens"] += ["<|é▁ |>"]
    fields[P + "token_type"] += [3]
    fields[P + "scores"] = [*fields.get(P + "scores", []), 0.0]
    tokenizer = from_gguf(fields)
    last = tokenizer.vocab_size - 1
    assert tokenizer.decode([last], specials=True) == "<|é▁ |>"
    assert tokenizer.encode("<|é▁ |>", specials=True) == [last]


def test_qwen2_composes_characters_and_gpt2_does_not():
    text = "cafe\u0301"
    assert from_gguf(gguf_bpe()).decode(from_gguf(gguf_bpe()).encode(text)) == text
    qwen = from_gguf(gguf_bpe() | {P + "pre": "qwen2"})
    assert qwen.decode(qwen.encode(text)) == "caf\u00e9"


def test_without_kinds_the_special_tokens_are_controls_and_the_rest_is_text():
    fields = gguf_bpe()
    del fields[P + "token_type"]
    tokenizer = from_gguf(fields)
    assert tokenizer.vocabulary.hidden == {0, 1}
    assert tokenizer.decode(tokenizer.encode("</s>")) == "</s>"


def test_an_end_that_text_can_spell_stays_a_token_of_text():
    fields = gguf_bpe()
    newline = fields[P + "tokens"].index("Ċ")
    tokenizer = from_gguf(fields | {P + "eos_token_id": newline})
    assert tokenizer.encode("\n") == [newline]
    assert tokenizer.eos_ids == (newline,)
    assert tokenizer.decode([newline]) == "\n"


def test_unused_ids_that_are_called_unknown_do_no_harm():
    fields = gguf_spm()
    fields[P + "tokens"] += ["[PAD420]"]
    fields[P + "scores"] += [-1000.0]
    fields[P + "token_type"] = [3, *fields[P + "token_type"][1:], 2]
    assert from_gguf(fields).encode("the cat") == from_gguf(gguf_spm()).encode("the cat")


def test_the_chat_template_of_the_file_is_used():
    template = "{{ eos_token }}{{ messages[0].content }}{{ eos_token }}"
    tokenizer = from_gguf(gguf_bpe() | {"tokenizer.chat_template": template})
    assert tokenizer.chat([{"content": "a</s>"}]) == [1, *tokenizer.encode("a</s>"), 1]


def test_a_rule_to_split_words_that_is_not_known_is_refused_by_name():
    with pytest.raises(DataError, match=r"got tekken, want gpt-2, smollm, .*\n  hint: load the"):
        from_gguf(gguf_bpe() | {P + "pre": "tekken"})
    assert "tekken" not in SPLITTINGS


NONE = object()
BAD = {
    "model": (gguf_bpe, "model", NONE, "model: got none, want gpt2 or llama"),
    "other model": (gguf_bpe, "model", "bert", "model: got bert"),
    "model's type": (gguf_bpe, "model", 7, "model: not a text: got int"),
    "pre": (gguf_bpe, "pre", NONE, "pre: not a known rule to split words: got none"),
    "tokens": (gguf_bpe, "tokens", NONE, "tokens: not an array: got none"),
    "no tokens": (gguf_bpe, "tokens", [], "tokens: got 0"),
    "bytes": (gguf_bpe, "tokens", [b"a"], "tokens: got bytes, want only str"),
    "token twice": (
        gguf_spm,
        "tokens",
        ["a", "b", "a"],
        "a token is there twice: got 'a': 0 and 2",
    ),
    "empty token": (gguf_spm, "tokens", ["a", ""], "lengths of tokens: got 0 to 1"),
    "merges": (gguf_bpe, "merges", NONE, "merges: not an array"),
    "one piece": (gguf_bpe, "merges", ["ab"], "merges: got 'ab', want two pieces"),
    "three pieces": (gguf_bpe, "merges", ["a b c"], "merges: got 'a b c'"),
    "unknown piece": (gguf_bpe, "merges", ["a qqqq"], "not a table of merges: got .*qqqq"),
    "few kinds": (gguf_bpe, "token_type", [1], "token_type: got 1 of"),
    "no such kind": (gguf_spm, "token_type", [9] * 420, "token_type: got 420 of .9."),
    "scores": (gguf_spm, "scores", NONE, "scores: not an array"),
    "few scores": (gguf_spm, "scores", [1.0], "scores: got 1, want 420"),
    "nan": (gguf_spm, "scores", [float("nan")] * 420, "has no score: got nan"),
    "text scores": (gguf_spm, "scores", ["a"] * 420, "scores: got str, want only float"),
    "bos": (gguf_bpe, "bos_token_id", 10**6, "bos_token_id: got 1000000, want 0 to"),
    "negative": (gguf_bpe, "eos_token_id", -1, "eos_token_id: got -1"),
    "text id": (gguf_bpe, "eos_token_id", "1", "eos_token_id: not a number: got '1'"),
    "flag": (gguf_bpe, "add_bos_token", "yes", "add_bos_token: not a flag: got str"),
    "unknown": (gguf_spm, "unknown_token_id", 300, "token_type: no unknown token"),
    "some bytes": (gguf_spm, "token_type", [2, 3, 3, 6] + [1] * 416, "byte pieces: got 1"),
    "no byte": (gguf_spm, "token_type", [2, 3, 3] + [6] * 417, "byte piece"),
}


@pytest.mark.parametrize("case", BAD)
def test_fields_that_are_missing_or_damaged_are_refused_by_name(case):
    kind, key, value, words = BAD[case]
    fields = kind() | {P + key: value}
    if value is NONE:
        del fields[P + key]
    with pytest.raises(DataError, match=words):
        from_gguf(fields)


def test_bos_that_is_wanted_must_be_there():
    fields = gguf_bpe() | {P + "add_bos_token": True}
    del fields[P + "bos_token_id"]
    with pytest.raises(DataError, match="add_bos_token: there is no BOS"):
        from_gguf(fields)


TEXTS = ["the cat", " the  cat\n", "é 123 <s>", "x</s>the", "", "cat.\n\n  Dog's"]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}</s>{% endfor %}"


def written(fields, folder):
    for name, data in files_from_gguf(fields).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("pre", SPLITTINGS)
def test_as_files_of_a_folder_a_byte_level_tokenizer_is_what_it_was(pre, tmp_path):
    fields = gguf_bpe() | {P + "pre": pre, "tokenizer.chat_template": TEMPLATE}
    fields[P + "tokens"] += ["«é x»", "zebra"]
    fields[P + "token_type"] += [4, 1]
    same(from_folder(written(fields, tmp_path)), from_gguf(fields))


@pytest.mark.parametrize("has_prefix", [True, False])
def test_as_files_of_a_folder_a_sentencepiece_tokenizer_is_what_it_was(has_prefix, tmp_path):
    fields = gguf_spm() | {P + "add_space_prefix": has_prefix}
    same(from_folder(written(fields, tmp_path)), from_gguf(fields))


def same(found, want):
    assert (found.bos_id, found.adds_bos, found.eos_ids) == (
        want.bos_id, want.adds_bos, want.eos_ids
    )  # fmt: skip
    for text in TEXTS:
        assert found.prompt_ids(text) == want.prompt_ids(text)
        assert found.encode(text, specials=True) == want.encode(text, specials=True)
        assert found.decode(want.encode(text)) == want.decode(want.encode(text))
    if want.template is not None:
        messages = [{"role": "user", "content": "the cat</s>"}]
        assert found.chat(messages) == want.chat(messages)


def test_transformers_reads_such_files_alike(tmp_path):
    fields = gguf_bpe() | {P + "pre": "llama-bpe"}
    theirs = oracle("transformers").AutoTokenizer.from_pretrained(written(fields, tmp_path))
    ours = from_gguf(fields)
    for text in TEXTS:
        assert theirs.encode(text)[1:] == ours.encode(text, specials=True)
        assert theirs.encode(text)[0] == ours.bos_id
    assert (theirs.bos_token, theirs.eos_token) == ("<s>", "</s>")


def test_an_end_that_text_can_spell_is_named_by_no_file(tmp_path):
    fields = gguf_bpe()
    newline = fields[P + "tokens"].index("Ċ")
    again = from_folder(written(fields | {P + "eos_token_id": newline}, tmp_path))
    assert again.encode("\n") == [newline]
