from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from torch_models import tiny_gpt2, tiny_llama
from toys import VOCAB, toy_llama

from orion_ane.errors import ConfigError
from orion_ane.models.scratch import draw, from_scratch
from orion_ane.models.weights import load_checkpoint, shapes


@pytest.mark.parametrize("config", [tiny_llama(tied=False), tiny_gpt2()])
def test_numbers_are_drawn_by_the_seed_alone(config):
    one, same, other = (draw(config, seed=seed) for seed in (1, 1, 2))
    assert {name: array.shape for name, array in one.items()} == shapes(config)
    assert all(array.dtype == np.float32 for array in one.values())
    for name, array in one.items():
        assert np.array_equal(array, same[name])
        assert np.array_equal(array, other[name]) == (array.ndim == 1)
    deeper = draw(replace(config, layers=3), seed=1)
    assert np.array_equal(deeper["layers.1.wq"], one["layers.1.wq"])


def test_numbers_are_as_wide_as_they_should_be():
    config = tiny_llama(vocab=2000, dim=96, hidden=400, tied=False)
    found = draw(config, seed=0, spread=0.05)
    for name in ("embed", "head", "layers.0.w1", "layers.1.w3"):
        assert found[name].std() == pytest.approx(0.05, rel=0.03)
        assert abs(found[name].mean()) < 1e-3
    assert found["layers.1.w2"].std() == pytest.approx(0.05 / math.sqrt(4), rel=0.03)
    assert (found["norm"] == 1).all()
    gpt2 = draw(tiny_gpt2(), seed=0)
    assert (gpt2["layers.0.ln1_g"] == 1).all()
    assert not any(gpt2[name].any() for name in ("lnf_b", "layers.1.bq", "layers.0.b1"))


def test_a_config_or_another_models_shape_serves(tmp_path, data_dir):
    model = toy_llama(tmp_path / "model")
    whole = load_checkpoint(model)
    for name in (model, model / "config.json"):
        found = from_scratch(name, seed=0)
        assert found.config == whole.config
        assert found.tokenizer == whole.tokenizer
        assert not np.array_equal(found.tensors["embed"], whole.tensors["embed"])
    (model / "model.safetensors").unlink()  # a shape needs no weights
    assert from_scratch(model, seed=0).config.vocab == VOCAB
    stories = from_scratch(data_dir / "stories260K" / "stories260K.bin", seed=0)
    assert (stories.config.vocab, stories.tokenizer.kind) == (512, "llama2c")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "bert"}, "not a family we know: got bert"),
        ({"num_attention_heads": 5}, "heads"),
        ({"initializer_range": 0}, "no such initializer_range: got 0"),
        ({"rotary_dim": 3}, "rotary_dim"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changed, message, tmp_path):
    model = toy_llama(tmp_path / "model")
    document = json.loads((model / "config.json").read_text()) | changed
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=message):
        from_scratch(tmp_path / "c.json", seed=0)
    with pytest.raises(ConfigError, match="seed: negative"):
        from_scratch(model, seed=-1)
