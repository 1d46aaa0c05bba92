"""One small tokenizer of each kind, made here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from vocabularies import (
    byte_level_json,
    gguf_bpe,
    gguf_spm,
    llama2c_bytes,
    llama2c_rows,
    metaspace_json,
    sentencepiece_model,
    write,
)

from orion_ane import text
from orion_ane.text import Tokenizer

KINDS = (
    "tokenizer.json",
    "metaspace",
    "gpt2",
    "gguf gpt2",
    "gguf llama",
    "sentencepiece",
    "llama2c",
)


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Tokenizer]:
    document = json.loads(byte_level_json())
    vocab = document["model"]["vocab"]
    merges = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in document["model"]["merges"])
    rows = llama2c_rows()
    folder: Path = write(
        tmp_path_factory.mktemp("tokenizers"),
        {
            "tokenizer.json": byte_level_json(),
            "metaspace.json": metaspace_json(),
            "vocab.json": vocab,
            "merges.txt": merges,
            "tokenizer.model": sentencepiece_model(),
            "tokenizer.bin": llama2c_bytes(rows),
        },
    )
    return {
        "tokenizer.json": text.from_tokenizer_json(folder / "tokenizer.json"),
        "metaspace": text.from_tokenizer_json(folder / "metaspace.json"),
        "gpt2": text.from_gpt2_files(folder / "vocab.json", folder / "merges.txt"),
        "gguf gpt2": text.from_gguf(gguf_bpe()),
        "gguf llama": text.from_gguf(gguf_spm()),
        "sentencepiece": text.from_sentencepiece(folder / "tokenizer.model"),
        "llama2c": text.from_llama2c(folder / "tokenizer.bin", len(rows)),
    }


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tokenizers: Mapping[str, Tokenizer]) -> Tokenizer:
    return tokenizers[request.param]


@pytest.fixture
def byte_level(tokenizers: Mapping[str, Tokenizer]) -> Tokenizer:
    return tokenizers["tokenizer.json"]


@pytest.fixture
def spm(tokenizers: Mapping[str, Tokenizer]) -> Tokenizer:
    return tokenizers["sentencepiece"]
