"""An adapter is learnt, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from orion_ane.errors import ConfigError
from orion_ane.lora.config import AdapterConfig
from orion_ane.lora.dropout import Dropout, Dropped
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
    assert result.summary["why_updates"].startswith("adapters are inputs")
    assert result.losses[-1] < result.losses[0] - 0.3
    assert len({(line["compiles"], line["loads"], line["reloads"]) for line in result.lines}) == 1
    base = from_scratch(asked["from_scratch"], seed=0)
    adapter = load_adapter(tmp_path / "out", base.config)
    assert len(adapter.matrices) == 14
    for path, one in adapter.matrices.items():
        assert np.abs(one.b).max() > 0, path
    for name in ("embed", "norm", "layers.0.attn_norm"):
        assert (result.model.tensors[name] == base.tensors[name]).all()


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(asked, tmp_path, rate):
    asked["adapter"] = replace(ADAPTER, dropout=rate)
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


def learnt(asked, tmp_path, name, **changes):
    config = TrainConfig(**asked | changes, steps=2, export=tmp_path / name)
    result = Trainer(config).train()
    return result, load_file(tmp_path / name / "adapter_model.safetensors")


def test_dropout_is_told_by_seed_and_row_alone(asked, tmp_path):
    asked["adapter"] = replace(ADAPTER, dropout=0.2)
    asked["eval_data"] = asked["data"]
    first, want = learnt(asked, tmp_path, "a")
    ways = ({"threads": 2}, {"batch": 1, "grad_accum": 2})
    for i, changes in enumerate(ways):
        again, found = learnt(asked, tmp_path, f"b{i}", **changes)
        assert again.losses == first.losses
        assert all((found[name] == want[name]).all() for name in want)
    assert len({(line["compiles"], line["loads"]) for line in first.lines}) == 1
    bare, _ = learnt(asked | {"adapter": ADAPTER}, tmp_path, "c")
    assert first.losses[0] == bare.losses[0]  # B is zeros yet
    assert first.losses[1] != bare.losses[1]
    document = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert document["lora_dropout"] == 0.2


def test_masks_drop_their_part_and_keep_the_mean():
    ports = {f"{i}": Dropped(i, 96, None) for i in range(2)}
    dropout = Dropout(0.25, 3, ports)
    drawn = [dropout.mask(p, row=row, lanes=64) for p in ports for row in (0, 1)]
    drawn.append(Dropout(0.25, 4, ports).mask("0", row=0, lanes=64))
    for mask in drawn:
        assert mask.shape == (1, 96, 1, 64)
        assert mask.flags.c_contiguous
        assert set(np.unique(mask)) == {0, np.float32(4 / 3)}
        assert abs((mask == 0).mean() - 0.25) < 0.03
    assert len({mask.tobytes() for mask in drawn}) == len(drawn)
    again = dropout.mask("1", row=1, lanes=64)
    assert (again == drawn[3]).all()
    assert (dropout.mask("1", row=1, lanes=16) == again[..., :16]).all()
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="dropout"):
            Dropout(rate, 0, {})


def test_another_adapter_does_not_go_on(asked, tmp_path):
    Trainer(TrainConfig(**asked, steps=1, checkpoint_dir=tmp_path / "run")).train()
    asked["adapter"] = AdapterConfig(rank=8, alpha=8, targets="all-linear")
    with pytest.raises(ConfigError) as refused:
        Trainer(TrainConfig(**asked, steps=1, checkpoint_dir=tmp_path / "run", resume=True)).train()
    began = f"the run in {tmp_path / 'run'} began with --rank 4"
    assert str(refused.value).splitlines()[0] == f"--rank 8: {began}"


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
    asked["adapter"] = replace(ADAPTER, dropout=0.1)
    result = Trainer(TrainConfig(**asked, steps=3)).train()
    assert result.losses[-1] < result.losses[0]
    assert len({(line["compiles"], line["loads"], line["reloads"]) for line in result.lines}) == 1
