"""What a loaded checkpoint is: config, named arrays, and where its tokenizer comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from orion_ane.models.config import ModelConfig
from orion_ane.models.weights.quantised import Quantised
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


@dataclass(frozen=True, eq=False)
class GgufTokenizer:
    """A tokenizer in the metadata of a GGUF file.

    Attributes:
        fields: the metadata whose keys begin with `tokenizer.`, as it stands in the file.
    """

    fields: Mapping[str, object] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))


TokenizerSource: TypeAlias = TokenizerFiles | GgufTokenizer


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model as it was read, nothing missing and nothing left over.

    Attributes:
        config: the model's shape.
        tensors: fp32 or fp16 arrays by canonical name (`weights.shapes`), matrices [out, in], all
            C-contiguous and read-only; read when first asked for, and some are views of the file,
            which must stay as it is: a change before a tensor is read is an error where the file
            is safetensors or GGUF and its size or time tells.
        tokenizer: where its tokenizer comes from; None where none lies beside the weights.
        stored: the element type that holds most of the numbers: `fp32`, `fp16`, `bf16`, `q4_1`, …
        origin: the file or folder.
        blocks: the matrices that are stored as int8 codes, which nothing need unpack.
    """

    config: ModelConfig
    tensors: Mapping[str, Array]
    tokenizer: TokenizerSource | None
    stored: str
    origin: str
    blocks: Mapping[str, Quantised] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(self.tensors))
