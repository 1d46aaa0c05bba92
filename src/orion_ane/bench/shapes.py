"""Models that are a shape alone, with random weights: what speed depends on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig
from orion_ane.models.weights import Checkpoint
from orion_ane.models.weights.tensors import shapes

SHAPES: Mapping[str, ModelConfig] = MappingProxyType({
    "llama-110m": LlamaConfig(
        vocab=32000, context=1024, dim=768, layers=12, heads=12, kv_heads=12, head_dim=64,
        hidden=2048, tied=True,
    ),
    "gpt2-124m": GPT2Config(
        vocab=50257, context=1024, dim=768, layers=12, heads=12, hidden=3072
    ),
})  # fmt: skip
"""By the names that `orion bench inference --model` takes beside those of real models."""


def random_checkpoint(config: ModelConfig, origin: str) -> Checkpoint:
    """A checkpoint of a shape, in fp16, without a tokenizer."""
    rng = np.random.default_rng(0)
    tensors = {
        name: (rng.standard_normal(shape, np.float32) * 0.02).astype(np.float16)
        for name, shape in shapes(config).items()
    }
    return Checkpoint(config, tensors, None, "fp16", origin)
