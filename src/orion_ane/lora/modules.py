"""A model's linears as PEFT names them, and the canonical matrices that each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orion_ane.models.config import GPT2Config, ModelConfig
from orion_ane.models.weights import shapes
from orion_ane.models.weights.hf import GPT2_NAMES, LLAMA_NAMES

HEAD = "lm_head"


@dataclass(frozen=True)
class Module:
    """A linear of a model.

    Attributes:
        path: its name, as `model.layers.0.self_attn.q_proj`.
        rows, columns: what comes out and goes in.
        parts: the canonical matrices that it is, each with its rows; one, but for fused ones.
    """

    path: str
    rows: int
    columns: int
    parts: Mapping[str, range]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    @property
    def suffix(self) -> str:
        """The name without its layer, as `self_attn.q_proj`."""
        words = self.path.split(".")
        numbers = [i for i, word in enumerate(words) if word.isdigit()]
        return ".".join(words[numbers[0] + 1 :]) if numbers else self.path


def head_name(config: ModelConfig) -> str:
    """The canonical matrix that makes logits, be it the embedding's own."""
    return table_name(config) if config.tied else "head"


def table_name(config: ModelConfig) -> str:
    """The canonical table of token vectors."""
    return "wte" if isinstance(config, GPT2Config) else "embed"


def table_path(config: ModelConfig) -> str:
    """What PEFT calls that table."""
    return "transformer.wte" if isinstance(config, GPT2Config) else "model.embed_tokens"


def modules_of(config: ModelConfig) -> dict[str, Module]:
    """Every linear by its path, the head last."""
    is_gpt2 = isinstance(config, GPT2Config)
    names = GPT2_NAMES if is_gpt2 else LLAMA_NAMES
    before = "transformer.h" if is_gpt2 else "model.layers"
    found: dict[str, Module] = {}
    sizes = shapes(config)
    for i in range(config.layers):
        for short, name in names.items():
            label = f"layers.{i}.{short}"
            if len(sizes.get(label, ())) != 2:
                continue
            fused = ("wq", "wk", "wv") if is_gpt2 and short == "wq" else (short,)
            path = f"{before}.{i}.{name.removesuffix('.weight')}"
            parts, at = {}, 0
            for part in fused:
                rows = sizes[f"layers.{i}.{part}"][0]
                parts[f"layers.{i}.{part}"] = range(at, at + rows)
                at += rows
            found[path] = Module(path, at, sizes[label][1], parts)
    found[HEAD] = Module(HEAD, config.vocab, config.dim, {HEAD: range(config.vocab)})
    return found
