"""GGUF models of the llama and gpt2 architectures: config, tensors and vocabulary from one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig, Rope
from orion_ane.models.weights.checkpoint import Checkpoint, GgufTokenizer
from orion_ane.models.weights.fields import Fields
from orion_ane.models.weights.gguf_file import open_gguf
from orion_ane.models.weights.tensors import (
    Entry,
    Stored,
    Way,
    collect,
    collect_blocks,
    entries,
    is_same,
    main_kind,
    to_half_split,
)
from orion_ane.types import Array

FAMILIES = ("gpt2", "llama")
EMBEDDING, HEAD, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"

LLAMA_NAMES = {
    "embed": EMBEDDING,
    "norm": "output_norm.weight",
    "head": HEAD,
    "attn_norm": "attn_norm.weight",
    "wq": "attn_q.weight",
    "wk": "attn_k.weight",
    "wv": "attn_v.weight",
    "wo": "attn_output.weight",
    "ffn_norm": "ffn_norm.weight",
    "w1": "ffn_gate.weight",
    "w3": "ffn_up.weight",
    "w2": "ffn_down.weight",
}
GPT2_NAMES = {
    "wte": EMBEDDING,
    "wpe": "position_embd.weight",
    "lnf_g": "output_norm.weight",
    "lnf_b": "output_norm.bias",
    "ln1_g": "attn_norm.weight",
    "ln1_b": "attn_norm.bias",
    "ln2_g": "ffn_norm.weight",
    "ln2_b": "ffn_norm.bias",
    "wq": "attn_qkv.weight",
    "bq": "attn_qkv.bias",
    "wo": "attn_output.weight",
    "bo": "attn_output.bias",
    "w1": "ffn_up.weight",
    "b1": "ffn_up.bias",
    "w2": "ffn_down.weight",
    "b2": "ffn_down.bias",
}
ENDS = ("eos", "eot", "eom")


def load_gguf(path: Path) -> Checkpoint:
    """The model in a GGUF file.

    Raises:
        CheckpointError: a damaged file, or tensors missing, left over, or of a type not read.
        ConfigError: another architecture, or metadata that cannot be honoured.
    """
    where = str(path)
    file = open_gguf(path)
    metadata = file.metadata
    fields = Fields(where, {k: v for k, v in metadata.items() if not k.startswith("tokenizer.")})
    fields.only("general.type", "model")
    fields.only("split.count", 0, 1)
    config = _config(where, fields, file.tensors, metadata)
    ignored = {ROPE_FACTORS} if isinstance(config, LlamaConfig) else set()
    if isinstance(config, GPT2Config) and _has_twin_head(where, file.tensors):
        ignored.add(HEAD)
    used = [tensor for name, tensor in file.tensors.items() if name not in ignored]
    needed = _entries(config)
    return Checkpoint(
        config=config,
        tensors=collect(where, needed, file.tensors, unused=ignored),
        tokenizer=_tokenizer(metadata),
        stored=main_kind(used),
        origin=where,
        blocks=collect_blocks(needed, file.tensors),
    )


def _config(
    where: str, fields: Fields, tensors: Mapping[str, Stored], metadata: Mapping[str, object]
) -> ModelConfig:
    """The model that the metadata describes."""
    family = fields.text("general.architecture")
    if family not in FAMILIES:
        raise ConfigError(where, "not a family we know", got=family, want=" or ".join(FAMILIES))
    if EMBEDDING not in tensors:
        raise CheckpointError(where, "tensors are missing", want=EMBEDDING)
    rows = tensors[EMBEDDING].shape[0]  # may be more than the vocabulary, to pad it
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    if isinstance(tokens, tuple) and len(tokens) > rows:
        raise CheckpointError(
            where, "more tokens than vectors", got=len(tokens), want=f"at most {rows}"
        )
    fields.only(f"{family}.vocab_size", rows)
    bos = _special(where, metadata, "bos", rows)
    found = (_special(where, metadata, role, rows) for role in ENDS)
    ends = tuple(dict.fromkeys(end for end in found if end is not None))
    config: ModelConfig
    if family == "gpt2":
        config = _gpt2(fields, rows, bos, ends)
    else:
        config = _llama(fields, tensors, rows, bos, ends)
    fields.finish(prefix=f"{family}.")
    return config


def _gpt2(fields: Fields, vocab: int, bos: int | None, ends: tuple[int, ...]) -> GPT2Config:
    heads = fields.size("gpt2.attention.head_count")
    fields.only("gpt2.attention.head_count_kv", heads)
    fields.only("gpt2.attention.causal", True)
    return GPT2Config(
        vocab=vocab,
        context=fields.size("gpt2.context_length"),
        dim=fields.size("gpt2.embedding_length"),
        layers=fields.size("gpt2.block_count"),
        heads=heads,
        hidden=fields.size("gpt2.feed_forward_length"),
        norm_eps=fields.number("gpt2.attention.layer_norm_epsilon"),
        bos_id=bos,
        eos_ids=ends,
    )


def _llama(
    fields: Fields,
    tensors: Mapping[str, Stored],
    vocab: int,
    bos: int | None,
    ends: tuple[int, ...],
) -> LlamaConfig:
    dim, heads = fields.size("llama.embedding_length"), fields.size("llama.attention.head_count")
    context = fields.size("llama.context_length")
    head_dim = fields.size("llama.attention.key_length", dim // heads or 1)
    fields.only("llama.attention.value_length", head_dim)
    fields.only("llama.rope.dimension_count", head_dim)
    fields.only("llama.attention.causal", True)
    fields.only("llama.tensor_data_layout", "Meta AI original pth")
    for name in ("expert_count", "expert_used_count", "attention.sliding_window"):
        fields.only(f"llama.{name}", 0)
    return LlamaConfig(
        vocab=vocab,
        context=context,
        dim=dim,
        layers=fields.size("llama.block_count"),
        heads=heads,
        kv_heads=fields.size("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        hidden=fields.size("llama.feed_forward_length"),
        tied=HEAD not in tensors,
        norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon"),
        rope=_rope(fields, tensors.get(ROPE_FACTORS), head_dim),
        bos_id=bos,
        eos_ids=ends,
    )


def _rope(fields: Fields, factors: Stored | None, head_dim: int) -> Rope:
    """The rotary settings; llama3's scaling comes as a tensor of divisors."""
    theta = fields.number("llama.rope.freq_base", 10000.0)
    old = fields.number("llama.rope.scale_linear", 1.0)
    kind = fields.text("llama.rope.scaling.type", "none" if old == 1 else "linear")
    factor = fields.number("llama.rope.scaling.factor", old)
    fields.flag("llama.rope.scaling.finetuned", default=False)  # says how it was trained
    if kind not in {"none", "linear", "yarn"}:
        raise ConfigError(
            fields.where, "a rope type we cannot do", got=kind, want="none, linear, yarn"
        )
    if factors is not None:
        return Rope(theta, "factors", _factors(fields.where, factors, head_dim, kind))
    if kind == "yarn":
        return Rope(theta, "yarn", _yarn(fields, factor))
    return Rope(theta) if kind == "none" else Rope(theta, "linear", (("factor", factor),))


def _factors(
    where: str, factors: Stored, head_dim: int, kind: str
) -> tuple[tuple[str, float], ...]:
    if kind != "none":
        raise ConfigError(where, f"{ROPE_FACTORS} and another rope scaling", got=kind)
    if factors.shape != (head_dim // 2,) or factors.read is None:
        got = f"{factors.kind} {list(factors.shape)}"
        raise CheckpointError(where, f"no such {ROPE_FACTORS}", got=got, want=f"[{head_dim // 2}]")
    return tuple((str(i), float(value)) for i, value in enumerate(factors.read()))


def _yarn(fields: Fields, factor: float) -> tuple[tuple[str, float], ...]:
    """llama.cpp's YaRN is the paper's, unless its own further knobs are turned."""
    scaling = "llama.rope.scaling"
    fields.only(f"{scaling}.yarn_ext_factor", 1)
    fields.only(f"{scaling}.yarn_log_multiplier", 0)
    fields.only(f"{scaling}.yarn_attn_factor", 1)
    fields.only(f"{scaling}.attn_factor", 1)
    given = {
        "original_max_position_embeddings": f"{scaling}.original_context_length",
        "beta_fast": f"{scaling}.yarn_beta_fast",
        "beta_slow": f"{scaling}.yarn_beta_slow",
    }
    found = [(ours, fields.number(k)) for ours, k in given.items() if fields.get(k) is not None]
    return (("factor", factor), *found)


def _has_twin_head(where: str, tensors: Mapping[str, Stored]) -> bool:
    """Whether a GPT-2 file holds the embedding twice, as old converters wrote it."""
    if HEAD not in tensors:
        return False
    if not is_same(tensors[HEAD], tensors[EMBEDDING]):
        got = f"{HEAD} {tensors[HEAD].kind}, {EMBEDDING} {tensors[EMBEDDING].kind}"
        raise ConfigError(where, "a head that is not the embedding", got=got, want="equal numbers")
    return True


def _entries(config: ModelConfig) -> list[Entry]:
    """What the file must hold."""
    if isinstance(config, GPT2Config):
        c = config.dim
        ways = {
            "wq": Way((3 * c, c), _thirds, ("wq", "wk", "wv")),
            "bq": Way((3 * c,), _thirds, ("bq", "bk", "bv")),
        }
        return entries(config, GPT2_NAMES, layer="blk.{}.", ways=ways)
    ways = {
        name: Way((heads * config.head_dim, config.dim), partial(_half_split, heads=heads))
        for name, heads in (("wq", config.heads), ("wk", config.kv_heads))
    }
    return entries(config, LLAMA_NAMES, layer="blk.{}.", ways=ways)


def _thirds(array: Array) -> Sequence[Array]:
    """Fused query, key and value, apart."""
    return np.split(array, 3)


def _half_split(array: Array, heads: int) -> Sequence[Array]:
    """The llama architecture stores query and key rows as neighbouring pairs."""
    return (to_half_split(array, heads),)


def _tokenizer(metadata: Mapping[str, object]) -> GgufTokenizer | None:
    """The metadata of the tokenizer, as it is; None where there is none."""
    if "tokenizer.ggml.model" not in metadata:
        return None
    return GgufTokenizer({k: v for k, v in metadata.items() if k.startswith("tokenizer.")})


def _special(where: str, metadata: Mapping[str, object], role: str, rows: int) -> int | None:
    """The id of a special token, which must have a vector."""
    ids = Fields(where, metadata).ids(f"tokenizer.ggml.{role}_token_id")
    if ids and ids[0] >= rows:
        raise CheckpointError(
            where, f"the {role} token has no vector", got=ids[0], want=f"below {rows}"
        )
    return ids[0] if ids else None
