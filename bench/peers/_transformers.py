"""transformers: its own model classes at the asked shape, random weights, its own cache."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from _protocol import NotToBeHadError, Rates, want


def prepare(work: dict[str, Any], dtype_name: str) -> tuple[str, Callable[[], Rates]]:
    """The model, and a run of it."""
    want(work, "inference")
    import torch
    import transformers

    warnings.simplefilter("ignore", FutureWarning)  # the cache's name, in the versions to come
    torch.set_num_threads(work["threads"])
    torch.manual_seed(0)
    config = _config(transformers, work["config"])
    dtype = getattr(torch, dtype_name)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    ids = torch.tensor([work["ids"]])

    @torch.inference_mode()
    def once() -> Rates:
        start = time.perf_counter()
        found = model(ids, use_cache=True, logits_to_keep=1)
        middle = time.perf_counter()
        for _ in range(work["new"]):
            last = found.logits[:, -1].argmax(-1, keepdim=True)
            found = model(last, past_key_values=found.past_key_values, use_cache=True)
        end = time.perf_counter()
        return {
            "prefill": ids.shape[1] / (middle - start),
            "decode": work["new"] / (end - middle),
        }

    return f"transformers {transformers.__version__}, torch {torch.__version__}, {dtype}", once


def _config(transformers: Any, shape: dict[str, Any]) -> Any:
    """The shape in its own words."""
    sizes = {"vocab_size": shape["vocab"], "bos_token_id": None, "eos_token_id": None}
    if shape["family"] == "gpt2":
        return transformers.GPT2Config(
            **sizes,
            n_positions=shape["context"],
            n_embd=shape["dim"],
            n_layer=shape["layers"],
            n_head=shape["heads"],
            n_inner=shape["hidden"],
        )
    if shape["family"] != "llama":
        raise NotToBeHadError(f"no {shape['family']} here")
    return transformers.LlamaConfig(
        **sizes,
        max_position_embeddings=shape["context"],
        hidden_size=shape["dim"],
        intermediate_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        tie_word_embeddings=shape["tied"],
    )
