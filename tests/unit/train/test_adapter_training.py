"""An adapter is learnt, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from orion_ane.errors import ConfigError
from orion_ane.lora.config import AdapterConfig
from orion_ane.lora.files import load_adapter
from orion_ane.models.scratch import from_scratch
from orion_ane.train.config import TrainConfig
from orion_ane.train.run import Trainer

SHAPE = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}
ADAPTER = AdapterConfig(rank=4, alpha=8, targets="all-linear")


@pytest.fixture
def asked(tmp_path):
    shape, ids = tmp_path / "shape.json", tmp_path / "ids.bin"
    shape.write_text(json.dumps(SHAPE))
    np.tile(np.arange(32, dtype="<u2"), 40).tofile(ids)
    return {
        "from_scratch": str(shape),
        "data": ids,
        "seq": 16,
        "batch": 2,
        "lr": 1e-2,
        "schedule": "constant",
        "device": "cpu",
        "threads": 1,
        "adapter": ADAPTER,
    }


def test_an_adapter_learns_while_programs_stay_as_they_are(asked, tmp_path):
    """Case L15."""
    result = Trainer(TrainConfig(**asked, steps=12, export=tmp_path / "out")).train()
    assert result.losses[-1] < result.losses[0] - 0.3
    assert len({(line["compiles"], line["loads"], line["reloads"]) for line in result.lines}) == 1
    base = from_scratch(asked["from_scratch"], seed=0)
    adapter = load_adapter(tmp_path / "out", base.config)
    assert len(adapter.matrices) == 14
    for path, one in adapter.matrices.items():
        assert np.abs(one.b).max() > 0, path
    for name in ("embed", "norm", "layers.0.attn_norm"):
        assert (result.model.tensors[name] == base.tensors[name]).all()


def test_a_run_that_was_stopped_goes_on_bit_for_bit(asked, tmp_path):
    for name, parts in (("whole", (6,)), ("parts", (3, 6))):
        folder = tmp_path / name
        for i, steps in enumerate(parts):
            out = tmp_path / f"{name}-{steps}"
            config = TrainConfig(
                **asked, steps=steps, checkpoint_dir=folder, resume=i > 0, export=out
            )
            Trainer(config).train()
    whole, parts = (
        load_file(tmp_path / f"{name}-6" / "adapter_model.safetensors")
        for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    assert all((whole[name] == parts[name]).all() for name in whole)
    saved = next((tmp_path / "whole").glob("step-*/state.safetensors"))
    assert all("lora_" in name for name in load_file(saved))


def test_another_adapter_does_not_go_on(asked, tmp_path):
    Trainer(TrainConfig(**asked, steps=1, checkpoint_dir=tmp_path / "run")).train()
    asked["adapter"] = AdapterConfig(rank=4, alpha=4, targets="all-linear")
    with pytest.raises(ConfigError, match="learns"):
        Trainer(TrainConfig(**asked, steps=2, checkpoint_dir=tmp_path / "run", resume=True)).train()


def test_other_ways_of_updates_are_refused(asked):
    with pytest.raises(ConfigError, match="updates"):
        TrainConfig(**asked, steps=1, updates="recompile")


@pytest.mark.slow
def test_it_learns_on_a_target_that_takes_new_weights_in_no_way(asked, tmp_path):
    """`pytest -m slow tests/unit/train/test_adapter_training.py`: half a minute."""
    target = tmp_path / "fixed.json"
    answers = {"base": "m5", "behaviour": {"reload": "refused", "donor": "refused"}}
    target.write_text(json.dumps(answers))
    asked |= {"device": "emulator", "target": str(target), "seq": 32}
    result = Trainer(TrainConfig(**asked, steps=3)).train()
    assert result.losses[-1] < result.losses[0]
    assert len({(line["compiles"], line["loads"], line["reloads"]) for line in result.lines}) == 1
