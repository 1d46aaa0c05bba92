"""Models out: a Hugging Face folder, or a llama2.c file; both are read back as what they were."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from orion_ane.artefacts.atomic import flush_folder, folder_beside, want_room, write_file
from orion_ane.artefacts.written import mark, own_names
from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.host.rope import Rope
from orion_ane.host.rope import tables as rope_tables
from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig
from orion_ane.models.weights.checkpoint import (
    GgufTokenizer,
    TokenizerFiles,
    TokenizerSource,
)
from orion_ane.models.weights.hf import HEAD, WEIGHTS, hf_entries
from orion_ane.models.weights.llama2c import FIELDS, HEADER, ORDER, layout, load_llama2c
from orion_ane.models.weights.tensors import as_is, to_interleaved
from orion_ane.types import Array

LLAMA2C = ".bin"
CONFIG = "config.json"
BESIDE = "chat_template.jinja"  # belongs to a tokenizer, without being one of its files


def export(
    path: Path,
    config: ModelConfig,
    tensors: Mapping[str, Array],
    tokenizer: TokenizerSource | None = None,
    *,
    replace: bool = False,
    check: Callable[[Path], None] = lambda _: None,
) -> list[str]:
    """Write a model in fp32: `*.bin` is a llama2.c file, any other path a Hugging Face folder.

    It is on the disk, whole, when this returns.  Files of a tokenizer are copied as they are,
    and one that stands in a GGUF file is written as such.

    Args:
        path: the file or folder.
        config: the model.
        tensors: its canonical tensors.
        tokenizer: where its tokenizer comes from.
        replace: whether what this function wrote there before may go, or a llama2.c file.
        check: called with a folder before it takes its place; where it raises, there is none.

    Returns:
        What a reader will miss, for people; nothing as a rule.

    Raises:
        ConfigError: something is there already, or the format cannot say what the model is.
    """
    want_exportable(path, config, replace=replace)
    if isinstance(config, LlamaConfig) and path.suffix == LLAMA2C:
        return _llama2c(path, config, tensors, tokenizer)
    document = to_hf(config)
    files = _tokenizer_files(tokenizer)
    with folder_beside(path, replace=replace, is_ours=is_model) as made:
        _write_json(made / CONFIG, document)
        ends = {name: document[name] for name in ("bos_token_id", "eos_token_id")}
        if any(end is not None for end in ends.values()):
            _write_json(made / "generation_config.json", ends)
        save_file(_hf_tensors(config, tensors), made / WEIGHTS, metadata={"format": "pt"})
        _flush(made / WEIGHTS)
        # The library's files are their owner's alone, unlike any other that a user writes.
        (made / WEIGHTS).chmod((made / CONFIG).stat().st_mode & 0o777)
        for name, data in files.items():
            write_file(made / name, data)
        mark(made)
        check(made)
    return _missed(tokenizer)


def is_model(folder: Path) -> bool:
    """Whether a folder has a model that `export` wrote, and nothing else."""
    return CONFIG in own_names(folder)


def want_exportable(path: Path, config: ModelConfig, *, replace: bool = False) -> None:
    """Refuse what `export` would, before there is anything to write.

    Raises:
        ConfigError: something is there already, the format cannot say what the model is, or the
            name ends as one of a format that is not written.
    """
    if path.suffix == LLAMA2C:
        _want_llama2c(str(path), config)
        _want_room(path, replace=replace)
        return
    if path.suffix in (".gguf", ".safetensors"):
        hint = f"give a folder: {path.with_suffix('')}; or {path.with_suffix(LLAMA2C).name}"
        raise ConfigError(str(path), "models are not written as such a file", hint=hint)
    to_hf(config)
    want_room(path, is_model, replace=replace)


def _want_room(path: Path, *, replace: bool) -> None:
    """Refuse a place that has something, unless it is such a file and may go."""
    if not path.exists() and not path.is_symlink():
        return
    try:
        may_go = path.is_file() and load_llama2c(path) is not None
    except CheckpointError:
        may_go = False
    if may_go and replace:
        return
    way = ", or --replace (in Python replace=True)" if may_go else ""
    raise ConfigError(str(path), "is there already", hint=f"give another name{way}")


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json of a model.

    Raises:
        ConfigError: rotary frequencies that config.json has no word for.
    """
    ends = list(config.eos_ids)
    found: dict[str, Any] = {
        "model_type": config.family,
        "torch_dtype": "float32",
        "vocab_size": config.vocab,
        "bos_token_id": config.bos_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
    }
    if isinstance(config, GPT2Config):
        return found | {
            "architectures": ["GPT2LMHeadModel"],
            "n_positions": config.context,
            "n_embd": config.dim,
            "n_layer": config.layers,
            "n_head": config.heads,
            "n_inner": config.hidden,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": config.norm_eps,
            "tie_word_embeddings": config.tied,
        }
    return found | {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": config.context,
        "hidden_size": config.dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied,
        **_rope(config.rope),
    }


def _rope(rope: Rope) -> dict[str, Any]:
    if rope.kind == "factors":
        hint = "they come from a GGUF file; take the model it was made from"
        raise ConfigError("config.json", "has no word for a factor of each frequency", hint=hint)
    if rope.kind == "default":
        return {"rope_theta": rope.theta}
    scaling = {"rope_type": rope.kind, **dict(rope.parameters)}
    return {"rope_theta": rope.theta, "rope_scaling": scaling}


def _hf_tensors(config: ModelConfig, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """By Hugging Face's names; what it keeps [in, out], or fused, is put so."""
    prefix = "transformer." if isinstance(config, GPT2Config) else "model."
    found = {}
    for entry in hf_entries(config):
        arrays = [np.asarray(tensors[name], np.float32) for name in entry.gives]
        is_moved = entry.convert is not as_is
        array = np.concatenate([a.T for a in arrays], axis=-1) if is_moved else arrays[0]
        name = entry.name if entry.name == HEAD else prefix + entry.name
        found[name] = np.ascontiguousarray(array)
    return found


def _tokenizer_files(tokenizer: TokenizerSource | None) -> dict[str, bytes]:
    """The files by name, with the chat template that lies beside them."""
    match tokenizer:
        case TokenizerFiles(files=files):
            found = {name: file.read_bytes() for name, file in files.items()}
            for file in files.values():
                if (template := file.parent / BESIDE).is_file():
                    found[BESIDE] = template.read_bytes()
            return found
        case GgufTokenizer(fields=fields):
            from orion_ane.text import files_from_gguf

            return files_from_gguf(fields)
    return {}


def _missed(tokenizer: TokenizerSource | None) -> list[str]:
    match tokenizer:
        case TokenizerFiles(kind="llama2c"):
            return ["the tokenizer is llama2.c's: this package reads it, transformers does not"]
        case None:
            return ["the model has no tokenizer: none was written"]
    return []


def _llama2c(
    path: Path,
    config: LlamaConfig,
    tensors: Mapping[str, Array],
    tokenizer: TokenizerSource | None,
) -> list[str]:
    """One file, the tokenizer's beside it."""
    is_theirs = isinstance(tokenizer, TokenizerFiles) and tokenizer.kind == "llama2c"
    files = tokenizer.files if isinstance(tokenizer, TokenizerFiles) and is_theirs else {}
    copies = {path.parent / name: file.read_bytes() for name, file in files.items()}
    for to, data in copies.items():
        if to.exists() and not (to.is_file() and to.read_bytes() == data):
            raise ConfigError(str(to), "is another tokenizer", hint="give another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    for to, data in copies.items():
        if not to.exists():
            write_file(to, data)
    half = path.with_name(f".{path.name}.half")
    half.unlink(missing_ok=True)  # what a killed process left
    try:
        write_file(half, _llama2c_bytes(config, tensors))
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    flush_folder(path.parent)
    return will_miss(path, tokenizer)


def will_miss(path: Path, tokenizer: TokenizerSource | None) -> list[str]:
    """What a llama2.c file will be without, for people, before there is one."""
    is_theirs = isinstance(tokenizer, TokenizerFiles) and tokenizer.kind == "llama2c"
    if is_theirs or path.suffix != LLAMA2C:
        return []
    why = "the model has no tokenizer" if tokenizer is None else "this tokenizer cannot become one"
    return [f"llama2.c wants a tokenizer.bin beside it, and {why}: a folder keeps what there is"]


def _want_llama2c(where: str, config: ModelConfig) -> None:
    """Refuse a model that the header cannot describe."""
    hint = "give a folder: Hugging Face's format has a word for it"
    if not isinstance(config, LlamaConfig):
        raise ConfigError(where, "llama2.c has Llama alone", got=config.family, hint=hint)
    is_theirs = np.float32(config.norm_eps) == np.float32(1e-5)  # GGUF has it in fp32
    eps = 1e-5 if is_theirs else config.norm_eps
    for what, got, want in (
        ("head_dim", config.head_dim, config.dim // config.heads),
        ("norm_eps", eps, 1e-5),
        ("rope", config.rope, Rope()),
    ):
        if got != want:
            raise ConfigError(where, f"llama2.c has one {what}", got=got, want=want, hint=hint)


def _llama2c_bytes(config: LlamaConfig, tensors: Mapping[str, Array]) -> bytearray:
    sizes = {name: getattr(config, name) for name in FIELDS}
    sizes["vocab"] *= 1 if config.tied else -1
    data = bytearray(HEADER.size + 4 * sum(prod(shape) for _, shape in layout(config)))
    HEADER.pack_into(data, 0, *sizes.values())
    numbers = np.frombuffer(data, "<f4", offset=HEADER.size)
    turned = {"wq": config.heads, "wk": config.kv_heads}
    at = 0
    for name, shape in layout(config):
        array = numbers[at : at + prod(shape)].reshape(shape)
        at += array.size
        if name in ORDER:
            for i, one in enumerate(array):
                rows = np.asarray(tensors[f"layers.{i}.{name}"], np.float32)
                one[...] = to_interleaved(rows, turned[name]) if name in turned else rows
        elif name:
            array[...] = tensors[name]
        else:  # cos and sin by position, which run.c computes anew
            half = config.head_dim // 2
            found = rope_tables(
                np.arange(config.context),
                config.rope,
                head_dim=config.head_dim,
                context=config.context,
            )
            array[...] = [table[:half].T for table in found]
    return data


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    said = {name: value for name, value in document.items() if value is not None}
    write_file(path, json.dumps(said, indent=2).encode())


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
