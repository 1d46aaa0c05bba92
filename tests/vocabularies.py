"""Vocabularies: small ones of each kind, made here, and the large ones of others."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from orion_ane.models.weights.gguf_file import open_gguf

ROOT = Path(__file__).resolve().parent.parent
STORIES = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the park.\n"
    "One day, she saw a big red ball. “Can I play?” she asked. It's hers, they'll say; I'd agree!\n"
    "def f(x):\n    return  x ** 2  # 1234567890, 3.14\n\tnaïve café, Привет, 你好, 😀🚀\n"
    "The cat sat on the mat, and the dog ran after the cat again and again and again.\n"
)
# llama.cpp's vocabularies: tools/fetch_llama_vocab.py
CACHE = Path(os.environ.get("ORION_LLAMA_VOCAB", ROOT / ".cache" / "llama-vocab"))


@cache
def metadata(path: Path) -> dict[str, Any]:
    """The metadata of a GGUF file."""
    return dict(open_gguf(path).metadata)


def fetched(name: str) -> Path:
    """A vocabulary that `tools/fetch_llama_vocab.py` fetches; skips where it did not."""
    path = CACHE / f"ggml-vocab-{name}.gguf"
    if not path.is_file():
        pytest.skip(
            f"no {name} vocabulary in {CACHE}: run tools/fetch_llama_vocab.py;"
            " the Mistral column of vectors.json is tested in its place"
        )
    return path


def folded(words: list[str]) -> list[tuple[str, str]]:
    """Merges that build each word from its beginning, one character at a time."""
    steps = {
        word[:i]: (word[: i - 1], word[i - 1]) for word in words for i in range(2, len(word) + 1)
    }
    return list(steps.values())


def vocabulary(
    specials: list[str], merges: list[tuple[str, str]], base: list[str]
) -> dict[str, int]:
    """Ids for special tokens, what stands alone, and what the merges make, in this order."""
    names = [*specials, *base, *("".join(merge) for merge in merges)]
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


@cache
def byte_level_json() -> str:
    """A tokenizer.json: byte-level BPE, `<s>` before each text, `<s>` and `</s>` as specials."""
    step = pre_tokenizers.ByteLevel(add_prefix_space=False)
    merges = folded([word for word, _ in step.pre_tokenize_str(STORIES)])
    ids = vocabulary(["<s>", "</s>"], merges, sorted(step.alphabet()))
    library = Tokenizer(models.BPE(ids, merges))
    library.pre_tokenizer = step
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    library.add_tokens([AddedToken("<think>", normalized=False)])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return str(library.to_str())


@cache
def metaspace_json() -> str:
    """A tokenizer.json as converted from SentencePiece: merges over U+2581, bytes at last."""
    merges = folded(["▁" + word for word in STORIES.split()] + STORIES.split())
    base = [f"<0x{byte:02X}>" for byte in range(256)] + sorted({"▁", *STORIES} - {" ", "\n"})
    specials = ["<unk>", "<s>", "</s>"]
    ids = vocabulary(specials, merges, base)
    library = Tokenizer(
        models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens(specials)
    return str(library.to_str())


@cache
def sentencepiece_model(**options: Any) -> bytes:
    """A tokenizer.model with Llama's settings."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        **{
            "sentence_iterator": iter(STORIES.split("\n") * 3),
            "model_writer": out,
            "model_type": "bpe",
            "vocab_size": 420,
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "character_coverage": 0.98,
            "num_threads": 1,
            "minloglevel": 2,
        }
        | options
    )
    return out.getvalue()


def pieces(model: bytes) -> list[tuple[str, float, int]]:
    """The pieces of a SentencePiece model: name, score, kind."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    kinds = {0: 2, 1: 3, 2: 3}
    return [
        (
            processor.id_to_piece(i),
            processor.get_score(i),
            kinds.get(i, 6 if processor.is_byte(i) else 1),
        )
        for i in range(processor.vocab_size())
    ]


def llama2c_bytes(rows: list[tuple[bytes, float]], longest: int | None = None) -> bytes:
    """A llama2.c tokenizer file."""
    head = struct.pack("<i", longest or max(len(text) for text, _ in rows))
    return head + b"".join(struct.pack("<fi", score, len(text)) + text for text, score in rows)


def llama2c_rows() -> list[tuple[bytes, float]]:
    """The SentencePiece vocabulary as llama2.c's exporter writes it."""
    special = {"<s>": b"\n<s>\n", "</s>": b"\n</s>\n"}
    return [
        (special.get(name, name.replace("▁", " ").encode()), score)
        for name, score, _ in pieces(sentencepiece_model())
    ]


def gguf_spm() -> dict[str, Any]:
    """GGUF metadata with the SentencePiece vocabulary."""
    names, scores, kinds = map(list, zip(*pieces(sentencepiece_model()), strict=True))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def gguf_bpe(**more: Any) -> dict[str, Any]:
    """GGUF metadata with the byte-level vocabulary."""
    document = json.loads(byte_level_json())
    ids = document["model"]["vocab"] | {t["content"]: t["id"] for t in document["added_tokens"]}
    names = sorted(ids, key=ids.__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in document["model"]["merges"]],
        "tokenizer.ggml.token_type": [
            3 if name in ("<s>", "</s>") else 4 if name == "<think>" else 1 for name in names
        ],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    } | {f"tokenizer.{key}": value for key, value in more.items()}


def write(folder: Path, files: Mapping[str, str | bytes | dict[str, Any]]) -> Path:
    """Files in a folder; a dict is written as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder
