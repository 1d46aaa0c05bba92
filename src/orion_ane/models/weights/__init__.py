"""Checkpoints in: Hugging Face folders, GGUF and llama2.c files as canonical named arrays."""

from orion_ane.models.weights.checkpoint import (
    Checkpoint,
    GgufTokenizer,
    TokenizerFiles,
    TokenizerSource,
)
from orion_ane.models.weights.load import load_checkpoint
from orion_ane.models.weights.precision import Loss, Report, Rounded, to_fp16
from orion_ane.models.weights.tensors import shapes, to_half_split, to_interleaved

__all__ = [
    "Checkpoint",
    "GgufTokenizer",
    "Loss",
    "Report",
    "Rounded",
    "TokenizerFiles",
    "TokenizerSource",
    "load_checkpoint",
    "shapes",
    "to_fp16",
    "to_half_split",
    "to_interleaved",
]
