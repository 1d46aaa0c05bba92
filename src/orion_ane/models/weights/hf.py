"""Hugging Face folders: config.json, safetensors in one file or in shards, tokenizer files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig
from orion_ane.models.weights.checkpoint import Checkpoint, TokenizerFiles
from orion_ane.models.weights.documents import read_json
from orion_ane.models.weights.fields import listed
from orion_ane.models.weights.hf_config import from_hf
from orion_ane.models.weights.safetensors import open_safetensors
from orion_ane.models.weights.tensors import (
    Entry,
    Stored,
    Way,
    collect,
    entries,
    is_same,
    main_kind,
)
from orion_ane.types import Array

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
PREFIXES = ("_orig_mod.", "transformer.", "model.")  # of torch.compile, of GPT-2, of Llama (W09)
HEAD = "lm_head.weight"
# Buffers that old writers saved: causal masks and rotary frequencies, which follow from the config.
BUFFERS = re.compile(
    r"h\.\d+\.attn\.(bias|masked_bias)|(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
)
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
VOCABULARIES = {"tokenizer.json", "vocab.json", "tokenizer.model"}

LLAMA_NAMES = {
    "embed": "embed_tokens.weight",
    "norm": "norm.weight",
    "head": HEAD,
    "attn_norm": "input_layernorm.weight",
    "wq": "self_attn.q_proj.weight",
    "wk": "self_attn.k_proj.weight",
    "wv": "self_attn.v_proj.weight",
    "wo": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "w1": "mlp.gate_proj.weight",
    "w3": "mlp.up_proj.weight",
    "w2": "mlp.down_proj.weight",
}
GPT2_NAMES = {
    "wte": "wte.weight",
    "wpe": "wpe.weight",
    "lnf_g": "ln_f.weight",
    "lnf_b": "ln_f.bias",
    "ln1_g": "ln_1.weight",
    "ln1_b": "ln_1.bias",
    "ln2_g": "ln_2.weight",
    "ln2_b": "ln_2.bias",
    "wq": "attn.c_attn.weight",
    "bq": "attn.c_attn.bias",
    "wo": "attn.c_proj.weight",
    "bo": "attn.c_proj.bias",
    "w1": "mlp.c_fc.weight",
    "b1": "mlp.c_fc.bias",
    "w2": "mlp.c_proj.weight",
    "b2": "mlp.c_proj.bias",
    "head": HEAD,
}


def load_hf(folder: Path) -> Checkpoint:
    """The model in a folder.

    Raises:
        CheckpointError: files or tensors are missing, damaged or left over.
        ConfigError: config.json asks for something that cannot be honoured.
    """
    files = _weight_files(folder)
    config_path, generation_path = folder / "config.json", folder / "generation_config.json"
    if not config_path.is_file():
        raise CheckpointError(str(folder), "config.json is missing")
    generation = read_json(generation_path) if generation_path.is_file() else {}
    config = from_hf(str(config_path), read_json(config_path), generation)
    stored = _stored(files, {HEAD, *(entry.name for entry in hf_entries(config))})
    config = _tied(config, stored)
    ignored = {name for name in stored if BUFFERS.fullmatch(name)}
    where = str(next(iter(files))) if len(files) == 1 else str(folder)
    if _drop_tied_head(where, config, stored):
        ignored.add(HEAD)
    tensors = collect(where, hf_entries(config), stored, unused=ignored)
    return Checkpoint(
        config=config,
        tensors=tensors,
        tokenizer=tokenizer_files(folder),
        stored=main_kind(tensor for name, tensor in stored.items() if name not in ignored),
        origin=str(folder),
    )


def tokenizer_files(folder: Path) -> TokenizerFiles | None:
    """The tokenizer files of a folder, or None where no vocabulary is among them.

    Where there are none of Hugging Face's, the only `tok*.bin` is one of llama2.c's.
    """
    found = {name: folder / name for name in TOKENIZER_FILES if (folder / name).is_file()}
    if VOCABULARIES & set(found):
        return TokenizerFiles("huggingface", found)
    theirs = list(folder.glob("tok*.bin"))
    return TokenizerFiles("llama2c", {theirs[0].name: theirs[0]}) if len(theirs) == 1 else None


def _weight_files(folder: Path) -> dict[Path, set[str] | None]:
    """The safetensors files that hold the model, and what an index says of each.

    All exist, and none has been read.
    """
    single, index = folder / WEIGHTS, folder / INDEX
    if single.is_file() and index.is_file():
        raise CheckpointError(
            str(folder), "two sets of weights", got=f"{WEIGHTS} and {INDEX}", hint="remove one"
        )
    if index.is_file():
        return _shards(index)
    if single.is_file():
        return {single: None}
    if pickles := [name for name in PICKLES if (folder / name).is_file()]:
        raise CheckpointError(
            str(folder),
            "only pickled weights, and a pickle can run any code when it is opened",
            got=pickles[0],
            want=WEIGHTS,
            hint="load it where it is trusted and save it with safe_serialization=True",
        )
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            str(folder), "a LoRA adapter, not a model", hint="give the model it was made for"
        )
    if not (folder / "config.json").exists():
        _want_no_run(folder)
        want = f"config.json with {WEIGHTS} or {INDEX}, or one .gguf or llama2.c .bin file"
        raise CheckpointError(str(folder), "holds no model", want=want)
    others = sorted(path.name for path in folder.iterdir())
    got = listed(others) if others else "an empty folder"
    raise CheckpointError(str(folder), "no weights", got=got, want=f"{WEIGHTS} or {INDEX}")


def _want_no_run(folder: Path) -> None:
    """Tell what makes a model of what a run of training keeps for itself.

    Raises:
        CheckpointError: it is that.
    """
    if (folder / "checkpoint.json").is_file():
        run = folder.parent
    elif next(folder.glob("step-*/checkpoint.json"), None) is not None:
        run = folder
    else:
        return
    hint = f"the run's own command with --checkpoint-dir {run} --resume --export NAME writes it"
    raise CheckpointError(str(folder), "the state of a training run, not a model", hint=hint)


def _shards(index: Path) -> dict[Path, set[str] | None]:
    """The files that an index names, in its folder, and what it says of each."""
    found = read_json(index).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise CheckpointError(str(index), "weight_map is missing or empty")
    names: dict[str, set[str]] = {}
    for tensor, name in found.items():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise CheckpointError(
                str(index), "no such shard", got=repr(name), want="a file beside the index"
            )
        names.setdefault(name, set()).add(tensor)
    shards: dict[Path, set[str] | None] = {index.parent / n: said for n, said in names.items()}
    if missing := [shard.name for shard in shards if not shard.is_file()]:
        raise CheckpointError(str(index), "shards are missing", want=listed(missing))
    return shards


def _stored(files: Mapping[Path, set[str] | None], known: Collection[str]) -> dict[str, Stored]:
    """All tensors of the files by their name without prefixes, known aliases among them (W03)."""
    found: dict[str, Stored] = {}
    sources: dict[str, str] = {}
    for path, said in files.items():
        opened = open_safetensors(path)
        if said is not None:
            _check_shard(path, opened.tensors, said)
        aliases = {
            alias: opened.tensors[name]
            for alias, name in opened.metadata.items()
            if name in opened.tensors
            and alias not in opened.tensors
            and _without_prefix(alias) in known
        }
        for full, tensor in {**opened.tensors, **aliases}.items():
            name = _without_prefix(full)
            if name in found:
                both = f"{sources[name]} and {full}"
                raise CheckpointError(str(path), "two tensors of one name", got=both)
            found[name], sources[name] = tensor, full
    return found


def _check_shard(path: Path, tensors: Collection[str], said: set[str]) -> None:
    """The shard holds what the index says, no less and no more."""
    if missing := sorted(said - set(tensors)):
        raise CheckpointError(str(path), "tensors of the index are missing", want=listed(missing))
    if extra := sorted(set(tensors) - said):
        raise CheckpointError(str(path), "tensors that the index lacks", got=listed(extra))


def _without_prefix(name: str) -> str:
    """The name as the bare model has it."""
    while prefix := next((p for p in PREFIXES if name.startswith(p)), None):
        name = name.removeprefix(prefix)
    return name


def _tied(config: ModelConfig, stored: Mapping[str, Stored]) -> ModelConfig:
    """The config; a GPT-2 whose own head repeats the embedding is one like the others."""
    if not isinstance(config, GPT2Config) or config.tied or not {HEAD, "wte.weight"} <= {*stored}:
        return config
    return replace(config, tied=is_same(stored[HEAD], stored["wte.weight"]))


def _drop_tied_head(where: str, config: ModelConfig, stored: Mapping[str, Stored]) -> bool:
    """Whether there is a head that only repeats the embedding, as a tied one must."""
    if not config.tied or HEAD not in stored:
        return False  # a tensor like any other, or none
    embedding = "wte.weight" if isinstance(config, GPT2Config) else "embed_tokens.weight"
    if embedding in stored and not is_same(stored[HEAD], stored[embedding]):
        raise CheckpointError(
            where,
            f"{HEAD} differs from {embedding}, which the config ties to it",
            hint='set "tie_word_embeddings": false in config.json if the head is meant',
        )
    return True


def hf_entries(config: ModelConfig) -> list[Entry]:
    """What the files must hold, by names without prefixes."""
    if isinstance(config, LlamaConfig):
        return entries(config, LLAMA_NAMES, layer="layers.{}.", ways={})
    # Conv1D keeps its matrices [in, out]; query, key and value are one of [C, 3·C].
    c, f = config.dim, config.hidden
    ways = {
        "wq": Way((c, 3 * c), _thirds, ("wq", "wk", "wv")),
        "bq": Way((3 * c,), _thirds, ("bq", "bk", "bv")),
        "wo": Way((c, c), _transposed),
        "w1": Way((c, f), _transposed),
        "w2": Way((f, c), _transposed),
    }
    return entries(config, GPT2_NAMES, layer="h.{}.", ways=ways)


def _transposed(array: Array) -> Sequence[Array]:
    """[in, out] as [out, in]."""
    return (array.T,)


def _thirds(array: Array) -> Sequence[Array]:
    """Fused query, key and value, apart and [out, in]."""
    return [part.T for part in np.split(array, 3, axis=-1)]
