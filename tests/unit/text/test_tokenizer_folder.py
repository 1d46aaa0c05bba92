"""Folders: which file is taken, and what the configs beside it say."""

from __future__ import annotations

import json

import pytest
from vocabularies import byte_level_json, metaspace_json, sentencepiece_model, write

from orion_ane.errors import DataError
from orion_ane.text import from_folder, from_sentencepiece

CONFIG = "tokenizer_config.json"


def gpt2_files() -> dict:
    model = json.loads(byte_level_json())["model"]
    merges = "#version: 0.2\n" + "\n".join(" ".join(merge) for merge in model["merges"]) + "\n"
    return {"vocab.json": model["vocab"], "merges.txt": merges}


def test_the_most_telling_file_is_taken(tmp_path):
    write(tmp_path, gpt2_files())
    assert from_folder(tmp_path).vocab_size == len(gpt2_files()["vocab.json"])
    write(tmp_path, {"tokenizer.model": sentencepiece_model()})
    assert from_folder(tmp_path).vocab_size == 420
    write(tmp_path, {"tokenizer.json": metaspace_json()})
    assert from_folder(tmp_path).vocab_size > 420


def test_a_folder_without_a_tokenizer_says_what_it_has(tmp_path):
    write(tmp_path, {"config.json": "{}", "vocab.json": "{}"})
    with pytest.raises(DataError, match=r"no tokenizer: got \['config.json', 'vocab.json'\], want"):
        from_folder(tmp_path)
    with pytest.raises(DataError, match="no tokenizer: got no folder"):
        from_folder(tmp_path / "nowhere")


def test_special_tokens_may_be_texts_or_objects(tmp_path):
    write(
        tmp_path,
        {
            "tokenizer.json": byte_level_json(),
            CONFIG: {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}},
        },
    )
    tokenizer = from_folder(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1,))
    assert tokenizer.names == {"bos_token": "<s>", "eos_token": "</s>"}


def test_the_older_map_of_special_tokens_serves_where_the_config_is_silent(tmp_path):
    files = {"tokenizer.json": byte_level_json(), "special_tokens_map.json": {"eos_token": "<s>"}}
    assert from_folder(write(tmp_path, files)).eos_ids == (0,)
    assert from_folder(write(tmp_path, {CONFIG: {"eos_token": "</s>"}})).eos_ids == (1,)


@pytest.mark.parametrize(
    ("files", "is_added"),
    [
        ({"tokenizer.json": byte_level_json()}, True),
        ({"tokenizer.json": byte_level_json(), CONFIG: {"add_bos_token": False}}, False),
        ({"tokenizer.json": metaspace_json()}, False),
        (
            {
                "tokenizer.json": metaspace_json(),
                CONFIG: {"bos_token": "<s>", "add_bos_token": True},
            },
            True,
        ),
        ({"tokenizer.model": sentencepiece_model()}, True),
        ({"tokenizer.model": sentencepiece_model(), CONFIG: {"add_bos_token": False}}, False),
        (gpt2_files() | {CONFIG: {"bos_token": "<s>"}}, False),
        (gpt2_files() | {CONFIG: {"bos_token": "<s>", "add_bos_token": True}}, True),
    ],
)
def test_prompts_start_with_bos_as_the_config_says_or_else_the_vocabulary(
    files, is_added, tmp_path
):
    tokenizer = from_folder(write(tmp_path, files))
    assert (tokenizer.prompt_ids("a")[0] == tokenizer.bos_id) is is_added


def test_generation_may_stop_at_more_tokens_than_the_tokenizer_names(tmp_path):
    write(
        tmp_path,
        {
            "tokenizer.json": byte_level_json(),
            CONFIG: {"eos_token": "</s>"},
            "generation_config.json": {"eos_token_id": [1, 0, 7]},
        },
    )
    assert from_folder(tmp_path).eos_ids == (1, 0, 7)
    write(tmp_path, {"generation_config.json": {"eos_token_id": 3}})
    assert from_folder(tmp_path).eos_ids == (1, 3)


TEMPLATE = "{{ messages[0].content }}"
NAMED = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]


@pytest.mark.parametrize(
    "files",
    [
        {CONFIG: {"chat_template": TEMPLATE}},
        {CONFIG: {"chat_template": NAMED}},
        {"chat_template.jinja": TEMPLATE},
        {"chat_template.jinja": TEMPLATE, CONFIG: {"chat_template": "another"}},
    ],
)
def test_the_chat_template_is_found_wherever_it_is_kept(files, tmp_path):
    tokenizer = from_folder(write(tmp_path, {"tokenizer.json": byte_level_json()} | files))
    assert tokenizer.chat([{"content": "Once"}]) == tokenizer.encode("Once")


def test_sentencepiece_prefixes_texts_as_the_config_says(tmp_path):
    write(tmp_path, {"tokenizer.model": sentencepiece_model()})
    first = from_folder(tmp_path)
    cat = first.encode("cat")
    bare = from_folder(write(tmp_path, {CONFIG: {"add_prefix_space": False}})).encode("cat")
    assert bare != cat
    assert first.encode("cat<s>cat", specials=True) == [*cat, 1, *bare]
    always = from_folder(write(tmp_path, {CONFIG: {"legacy": True}}))
    assert always.encode("cat<s>cat", specials=True) == [*cat, 1, *cat]
    never = from_folder(write(tmp_path, {CONFIG: {"add_prefix_space": False}}))
    assert never.decode(never.encode(" cat")) == " cat"


def test_control_tokens_may_be_added_after_the_pieces_of_sentencepiece(tmp_path):
    added = {
        "1": {"content": "<s>", "special": True},
        "420": {"content": "<|turn|>", "special": True},
    }
    write(
        tmp_path,
        {
            "tokenizer.model": sentencepiece_model(),
            CONFIG: {"added_tokens_decoder": added, "eos_token": "<|turn|>"},
        },
    )
    tokenizer = from_folder(tmp_path)
    assert tokenizer.vocab_size == 421
    assert tokenizer.eos_ids == (420,)
    assert tokenizer.encode("<|turn|>", specials=True) == [420]
    assert 420 not in tokenizer.encode("<|turn|>")
    assert tokenizer.decode([420], specials=True) == "<|turn|>"


def test_sentencepiece_that_trims_texts_is_decoded_as_it_does(tmp_path):
    write(
        tmp_path,
        {"tokenizer.model": sentencepiece_model(remove_extra_whitespaces=True, vocab_size=400)},
    )
    tokenizer = from_sentencepiece(tmp_path / "tokenizer.model")
    assert tokenizer.decode(tokenizer.encode("  the   cat ")) == "the cat"
    space = tokenizer.codec.processor.piece_to_id("▁")
    assert tokenizer.decode([space, space, *tokenizer.encode("cat")]) == "cat"


def test_added_tokens_in_a_file_of_their_own_must_be_in_the_others_too(tmp_path):
    files = gpt2_files()
    known = files["vocab.json"] | {"<|x|>": len(files["vocab.json"])}
    write(tmp_path, files | {"vocab.json": known, "added_tokens.json": {"<|x|>": len(known) - 1}})
    assert from_folder(tmp_path).encode("<|x|>", specials=True) == [len(known) - 1]
    write(tmp_path, files)
    with pytest.raises(DataError, match=r"'<\|x\|>' is in no other file"):
        from_folder(tmp_path)


BAD = {
    "no bos": ({CONFIG: {"bos_token": "<no>"}}, "bos_token: no such token: got '<no>'"),
    "odd bos": ({CONFIG: {"bos_token": 7}}, "bos_token: got 7, want a token"),
    "flag": ({CONFIG: {"add_bos_token": "yes"}}, "add_bos_token: got yes"),
    "end": ({"generation_config.json": {"eos_token_id": 10**6}}, "eos_token_id: no such token"),
    "odd end": ({"generation_config.json": {"eos_token_id": "x"}}, "eos_token_id: no such token"),
    "template": ({CONFIG: {"chat_template": 7}}, "chat_template: got int"),
    "names": (
        {CONFIG: {"chat_template": [{"name": "tool_use", "template": "x"}]}},
        r"chat_template: got \['tool_use'\], want one that is named default",
    ),
    "json": ({CONFIG: "{"}, "tokenizer_config.json: not JSON"),
    "merges": ({"tokenizer.json": "{}"}, "not a tokenizer that can be read: got KeyError"),
}


@pytest.mark.parametrize("case", BAD)
def test_configs_that_do_not_fit_are_refused_by_name(case, tmp_path):
    files, words = BAD[case]
    write(tmp_path, {"tokenizer.json": byte_level_json()} | files)
    with pytest.raises(DataError, match=words):
        from_folder(tmp_path)


def test_a_bos_that_is_wanted_must_be_there(tmp_path):
    write(tmp_path, gpt2_files() | {CONFIG: {"add_bos_token": True}})
    with pytest.raises(DataError, match="add_bos_token: got True, want a flag, and a BOS token"):
        from_folder(tmp_path)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ({"420": {"content": "x", "special": False}}, "that are not special: got .'x'.\n  hint"),
        ({"421": {"content": "x", "special": True}}, "'x' cannot be added: got 421, want 420"),
        ({"1": {"content": "x", "special": True}}, "'x' cannot be added: got 1, want 420"),
        ({"x": {"content": "x", "special": True}}, "added_tokens_decoder: got invalid literal"),
        ({"420": "x"}, "added_tokens_decoder: got"),
        ([1], "added_tokens_decoder: got"),
    ],
)
def test_tokens_that_cannot_be_added_to_sentencepiece_are_refused(added, words, tmp_path):
    files = {"tokenizer.model": sentencepiece_model(), CONFIG: {"added_tokens_decoder": added}}
    with pytest.raises(DataError, match=words):
        from_folder(write(tmp_path, files))
