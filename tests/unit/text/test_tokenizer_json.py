"""tokenizer.json: what it declares is what is done, and what cannot be done is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabularies import byte_level_json, metaspace_json, write

from orion_ane.errors import DataError
from orion_ane.text import from_folder, from_tokenizer_json


def load(tmp_path, document, **options):
    write(tmp_path, {"tokenizer.json": document})
    return from_tokenizer_json(tmp_path / "tokenizer.json", **options)


def edited(source: str, path: str, value: object) -> dict:
    """The document with one value set, `a.b.c`."""
    document = json.loads(source)
    *way, last = path.split(".")
    inner = document
    for key in way:
        inner = inner[key]
    inner[last] = value
    return document


def test_S09_a_byte_level_file_is_byte_level_whatever_the_model_is_called(tmp_path):
    write(
        tmp_path,
        {
            "tokenizer.json": byte_level_json(),
            "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "legacy": False},
            "config.json": {"model_type": "llama"},
        },
    )
    tokenizer = from_folder(tmp_path)
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
    assert tokenizer.decode(tokenizer.encode(" a  b ")) == " a  b "


def test_a_merge_that_makes_a_control_token_is_not_made(tmp_path):
    document = json.loads(byte_level_json())
    document["added_tokens"].pop()  # the one whose id comes after the model's own
    vocab = document["model"]["vocab"]
    first = len(vocab)
    vocab |= {"QQ": first, "QQQ": first + 1}
    document["model"]["merges"] += [["Q", "Q"], ["QQ", "Q"]]
    assert load(tmp_path, document).encode("QQQ") == [first + 1]
    tokenizer = load(tmp_path, document, specials=["QQQ"])
    assert tokenizer.encode("QQQ") == [first, vocab["Q"]]
    assert tokenizer.encode("QQQ", specials=True) == [first + 1]
    assert tokenizer.decode([first, vocab["Q"]]) == "QQQ"


def test_the_post_processor_says_whether_texts_start_with_bos(tmp_path):
    tokenizer = load(tmp_path / "a", byte_level_json())
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (0, True)
    plain = load(tmp_path / "b", edited(byte_level_json(), "post_processor", {"type": "ByteLevel"}))
    assert (plain.bos_id, plain.adds_bos) == (None, False)


def test_a_special_token_named_from_outside_is_a_control_token(tmp_path):
    document = edited(byte_level_json(), "added_tokens", [])
    assert load(tmp_path, document).encode("<s>", specials=True) != [0]
    tokenizer = load(tmp_path, document, specials=["<s>", "nowhere"])
    assert tokenizer.encode("<s>", specials=True) == [0]
    assert 0 not in tokenizer.encode("<s>")


def test_an_added_token_named_from_outside_is_a_control_token(tmp_path):
    tokenizer = load(tmp_path, byte_level_json(), specials=["<think>"])
    last = tokenizer.vocab_size - 1
    assert tokenizer.encode("a<think>", specials=True)[1:] == [last]
    assert last not in tokenizer.encode("a<think>")


def test_an_added_token_that_is_no_control_is_found_in_any_text(tmp_path):
    tokenizer = load(tmp_path, byte_level_json())
    ids = tokenizer.encode("a<think>b")
    assert ids[1] == tokenizer.vocab_size - 1
    assert tokenizer.decode(ids) == "a<think>b"


def test_truncation_and_padding_in_the_file_do_not_touch_texts(tmp_path):
    document = json.loads(byte_level_json())
    document["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    document["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<s>",
    }
    tokenizer = load(tmp_path, document)
    assert tokenizer.decode(tokenizer.encode("Once upon a time")) == "Once upon a time"
    assert 0 not in tokenizer.encode("a")


def test_a_character_without_a_token_is_refused_not_dropped(tmp_path):
    document = json.loads(byte_level_json())
    document["added_tokens"].pop()
    del document["model"]["vocab"]["!"]
    document["model"]["merges"] = [m for m in document["model"]["merges"] if "!" not in m]
    tokenizer = load(tmp_path, document)
    assert tokenizer.encode("agree")
    with pytest.raises(DataError, match="cannot write this text: got byte 0x21"):
        tokenizer.encode("agree!")


@pytest.mark.parametrize("schemes", [("always", " "), ("never", " a")])
def test_metaspace_decoders_lose_the_space_they_say_they_add(schemes, tmp_path):
    scheme, text = schemes
    document = edited(
        metaspace_json(),
        "decoder",
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
    )
    tokenizer = load(tmp_path, document)
    space = [tokenizer.vocabulary.pieces.index(b" ")]
    assert tokenizer.decode(space + tokenizer.encode("xa")[-1:]).startswith(text[:-1])


BAD = {
    "model WordPiece": ("model.type", "WordPiece", "model: got WordPiece, want BPE or Unigram"),
    "dropout": ("model.dropout", 0.1, "merges at random: got dropout 0.1"),
    "decoder": (
        "decoder",
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "decoder step: got WordPiece",
    ),
    "strip two": (
        "decoder",
        {"type": "Strip", "content": " ", "start": 2, "stop": 0},
        "decoder step: got Strip",
    ),
    "post": ("post_processor", {"type": "BertProcessing"}, "post-processor: got BertProcessing"),
    "id": ("added_tokens", [{"id": 9, "content": "x", "special": True}], "not a tokenizer|id"),
    "no model": ("model", None, "not a tokenizer that can be read"),
    "no vocab": ("model.vocab", 7, "not a tokenizer that can be read"),
    "list vocab": ("model.vocab", [1, 2], "not a tokenizer that can be read"),
    "text ids": ("model.vocab", {"a": "b"}, "not a tokenizer that can be read"),
    "negative": ("model.vocab", {"a": -1}, "id out of range: got -1"),
    "absurd": ("model.vocab", {"a": 1 << 40}, "id out of range: got 1099511627776"),
    "twice": ("model.vocab", {"a": 3, "b": 3}, "two tokens have one id: got 'a' and 'b': 3"),
    "empty": ("model.vocab", {"": 0}, "lengths of tokens: got 0"),
    "merges": ("model.merges", [["q", "nowhere"]], "not a tokenizer that can be read"),
    "merge": ("model.merges", [["q"]], "not a tokenizer that can be read"),
    "pre": ("pre_tokenizer", {"type": "Nonesuch"}, "not a tokenizer that can be read"),
    "regex": (
        "pre_tokenizer",
        {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False},
        "not a tokenizer that can be read",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_damaged_or_not_supported_is_refused_by_name(case, tmp_path):
    path, value, words = BAD[case]
    with pytest.raises(DataError, match=words):
        load(tmp_path, edited(byte_level_json(), path, value))


def test_a_model_that_would_drop_characters_is_refused(tmp_path):
    document = edited(metaspace_json(), "model.unk_token", None)
    assert load(tmp_path, document).encode("\x00é")
    document["model"]["byte_fallback"] = False
    with pytest.raises(DataError, match="drops characters it does not know"):
        load(tmp_path, document)


def test_a_bos_of_two_tokens_is_refused(tmp_path):
    document = json.loads(byte_level_json())
    processor = document["post_processor"]
    processor["single"].insert(0, processor["single"][0])
    with pytest.raises(DataError, match="texts start with several tokens"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", "null", '{"a":', b"\xff", b"\x00" * 9, "[" * 99999]
)
def test_what_is_no_json_object_is_refused(content, tmp_path):
    with pytest.raises(DataError, match=r"tokenizer.json: not (JSON|UTF-8|a JSON object)"):
        load(tmp_path, content)


def test_every_prefix_of_a_file_is_refused(tmp_path):
    whole = byte_level_json()
    for length in range(0, len(whole) - 1, 997):
        with pytest.raises(DataError):
            load(tmp_path, whole[:length])


def places(value, path=()):
    """The way to each value inside, but for the many in the middle of long lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items)[:6]:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*path, key))


PLACES = list(places(json.loads(metaspace_json())))
VALUES = [None, True, 0, -1, 1 << 40, 1.5, "", "x", "<s>", [], {}, [1], [["a", "b"]], {"type": "x"}]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=st.sampled_from(VALUES))
def test_a_file_with_any_value_changed_is_read_or_refused(place, value, tmp_path):
    document = json.loads(metaspace_json())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    try:
        tokenizer = load(tmp_path, document)
        tokenizer.decode(tokenizer.encode("Once <s>", specials=True), specials=True)
    except DataError:
        pass


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.json: cannot be read: got No such file"):
        from_tokenizer_json(tmp_path / "nowhere.json")
