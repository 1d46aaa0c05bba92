"""Toy models that tests write to disk: real formats, random weights, made in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
END = "<|end|>"
VOCAB = len(BYTES) + 1


def byte_tokenizer(folder: Path) -> None:
    """One token a byte, and an end token: `tokenizer.json`."""
    tokenizer = Tokenizer(models.BPE(vocab={b: i for i, b in enumerate(BYTES)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_hf(folder: Path, config: dict[str, object], tensors: dict[str, np.ndarray]) -> Path:
    """A Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    byte_tokenizer(folder)
    return folder


def toy_gpt2(folder: Path, *, context: int = 64, seed: int = 0, dtype=np.float32) -> Path:
    """A GPT-2 of two layers, 32 channels, 4 heads."""
    rng = np.random.default_rng(seed)
    c = 32

    def draw(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 0.3).astype(dtype)

    tensors = {"wte.weight": draw(VOCAB, c), "wpe.weight": draw(context, c)}
    for i in range(2):
        at = f"h.{i}."
        for name, fan_in, fan_out in (
            ("attn.c_attn", c, 3 * c),
            ("attn.c_proj", c, c),
            ("mlp.c_fc", c, 4 * c),
            ("mlp.c_proj", 4 * c, c),
        ):
            tensors[f"{at}{name}.weight"] = draw(fan_in, fan_out)
            tensors[f"{at}{name}.bias"] = draw(fan_out)
        for norm in ("ln_1", "ln_2"):
            tensors[f"{at}{norm}.weight"] = 1 + draw(c)
            tensors[f"{at}{norm}.bias"] = draw(c)
    tensors |= {"ln_f.weight": 1 + draw(c), "ln_f.bias": draw(c)}
    config = {
        "model_type": "gpt2",
        "vocab_size": VOCAB,
        "n_positions": context,
        "n_embd": c,
        "n_layer": 2,
        "n_head": 4,
        "activation_function": "gelu_new",
        "bos_token_id": VOCAB - 1,
        "eos_token_id": VOCAB - 1,
    }
    return write_hf(folder, config, tensors)


def toy_llama(folder: Path, *, context: int = 64, seed: int = 0, dtype=np.float32) -> Path:
    """A Llama of two layers, 24 channels, 6 query heads on 2 key heads, untied."""
    rng = np.random.default_rng(seed)
    c, heads, kv_heads, d, hidden = 24, 6, 2, 4, 40

    def draw(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 0.3).astype(dtype)

    tensors = {"model.embed_tokens.weight": draw(VOCAB, c), "lm_head.weight": draw(VOCAB, c)}
    for i in range(2):
        at = f"model.layers.{i}."
        tensors |= {
            at + "self_attn.q_proj.weight": draw(heads * d, c),
            at + "self_attn.k_proj.weight": draw(kv_heads * d, c),
            at + "self_attn.v_proj.weight": draw(kv_heads * d, c),
            at + "self_attn.o_proj.weight": draw(c, heads * d),
            at + "mlp.gate_proj.weight": draw(hidden, c),
            at + "mlp.up_proj.weight": draw(hidden, c),
            at + "mlp.down_proj.weight": draw(c, hidden),
            at + "input_layernorm.weight": 1 + draw(c),
            at + "post_attention_layernorm.weight": 1 + draw(c),
        }
    tensors["model.norm.weight"] = 1 + draw(c)
    config = {
        "model_type": "llama",
        "vocab_size": VOCAB,
        "max_position_embeddings": context,
        "hidden_size": c,
        "intermediate_size": hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": d,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": VOCAB - 1,
        "eos_token_id": VOCAB - 1,
    }
    return write_hf(folder, config, tensors)


def lost(folder: Path) -> Path:
    """A toy Llama in whose head a number is none, as a run that went wrong leaves it."""
    path = toy_llama(folder) / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"][5, 0] = np.nan
    save_file(tensors, path, metadata={"format": "pt"})
    return folder
