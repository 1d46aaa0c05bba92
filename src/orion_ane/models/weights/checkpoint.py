"""What a loaded checkpoint is: config, named arrays, and where its tokenizer comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from orion_ane.models.config import ModelConfig
from orion_ane.types import Array


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer in files of its own.

    Attributes:
        kind: `huggingface` (tokenizer.json, vocab.json and merges.txt, or tokenizer.model, and what
            belongs to them) or `llama2c` (one `tok*.bin`).
        files: paths by file name.
    """

    kind: Literal["huggingface", "llama2c"]
    files: Mapping[str, Path]

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", MappingProxyType(dict(self.files)))


@dataclass(frozen=True)
class GgufVocabulary:
    """A tokenizer in the metadata of a GGUF file.

    Attributes:
        model: the algorithm's name there: `gpt2` (byte-level BPE) or `llama` (SentencePiece).
        pre: how text is cut before BPE, by the name that llama.cpp gives it.
        tokens: the pieces by id.
        scores: a piece's score by id; empty where the file has none.
        merges: "left right" in the order of their ranks; empty where the file has none.
        types: a piece's type by id (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6
            byte); empty where the file has none.
        specials: ids of special tokens by role: `bos`, `eos`, `eot`, `eom`, `unknown`, `padding`, …
        add_bos: whether a prompt starts with BOS; None where the file does not say.
        add_eos: the same of its end.
        add_space_prefix: whether text gets a space in front; None where the file does not say.
    """

    model: str
    pre: str | None
    tokens: tuple[str, ...] = field(repr=False)
    scores: tuple[float, ...] = field(repr=False)
    merges: tuple[str, ...] = field(repr=False)
    types: tuple[int, ...] = field(repr=False)
    specials: Mapping[str, int]
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "specials", MappingProxyType(dict(self.specials)))


TokenizerSource: TypeAlias = TokenizerFiles | GgufVocabulary


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model as it was read, nothing missing and nothing left over.

    Attributes:
        config: the model's shape.
        tensors: fp32 or fp16 arrays by canonical name (`weights.shapes`), matrices [out, in], all
            C-contiguous and read-only; they may be views of the file, which must stay as it is.
        tokenizer: where its tokenizer comes from; None where none lies beside the weights.
        chat_template: the Jinja text, where the files have one.
        stored: the element type that holds most of the numbers: `fp32`, `fp16`, `bf16`, `q4_1`, …
        origin: the file or folder.
    """

    config: ModelConfig
    tensors: Mapping[str, Array]
    tokenizer: TokenizerSource | None
    chat_template: str | None
    stored: str
    origin: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
