"""A process loads what its model needs: what is in memory beside the weights is the user's loss."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orion_ane.bench.shapes import random_checkpoint
from orion_ane.models.config import LlamaConfig
from orion_ane.models.weights.export import export

TINY = LlamaConfig(
    vocab=61, context=32, dim=32, layers=2, heads=4, kv_heads=2, head_dim=8, hidden=48, tied=True
)
PROGRAM = """
import sys
import orion_ane
with orion_ane.load(sys.argv[1], device="cpu") as model:
    assert len(model.generate([1, 2, 3], max_tokens=3).ids) == 3
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
NEEDLESS = {
    "gguf", "huggingface_hub", "jinja2", "rich", "safetensors", "scipy", "sentencepiece",
    "tokenizers", "typer", "yaml",
}  # fmt: skip


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="numba loads all code here"
)
def test_a_model_without_a_tokenizer_whose_kernels_are_kept_needs_numpy_alone(
    tmp_path: Path,
) -> None:
    checkpoint = random_checkpoint(TINY, "tiny")
    export(tmp_path / "tiny", checkpoint.config, checkpoint.tensors)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "tiny")]
    for _ in range(2):  # the first may have to compile what the second finds
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "numpy" in loaded
    assert not loaded & (NEEDLESS | {"numba", "llvmlite"})
