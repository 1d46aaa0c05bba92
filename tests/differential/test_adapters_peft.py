"""Adapters against PEFT itself: its folders read here, and ours read there."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from oracles import oracle
from peft_models import GPT2, LLAMA, adapted, gpt2, llama, saved

import orion_ane
from orion_ane.errors import ConfigError
from orion_ane.lora.adapter import merged
from orion_ane.lora.config import read_config
from orion_ane.lora.files import load_adapter, save_adapter
from orion_ane.models.weights import load_checkpoint
from orion_ane.models.weights.export import export

ALIKE = 1e-4  # logits in fp32

torch = oracle("torch")
transformers = oracle("transformers")
peft = oracle("peft")
files = oracle("safetensors.torch")

IDS = [5, 17, 3, 60, 42, 8, 9, 1, 33]
CASES = [("llama", name) for name in LLAMA] + [("gpt2", name) for name in GPT2]


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def pair(request, tmp_path_factory):
    """Folders of a model and of an adapter, and the logits of both together."""
    family, name = request.param
    tmp_path = tmp_path_factory.mktemp("pair")
    torch.manual_seed(7)
    base, settings = (llama(), LLAMA[name]) if family == "llama" else (gpt2(), GPT2[name])
    base.save_pretrained(tmp_path / "base")
    model = adapted(base, settings)
    saved(model, tmp_path / "adapter")
    return tmp_path / "base", tmp_path / "adapter", logits_of(model)


def test_what_peft_writes_by_default_says_nothing(tmp_path):
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    peft.LoraConfig(**settings).save_pretrained(tmp_path)
    document = json.loads((tmp_path / "adapter_config.json").read_text())
    assert read_config(tmp_path / "adapter_config.json", document)[1] == []
    (note,) = read_config(tmp_path / "adapter_config.json", {**document, "novel": None})[1]
    assert note.endswith("not known here: novel")


def theirs_again(base, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(base)
        return peft.PeftModel.from_pretrained(model, folder).eval()


def test_an_adapter_of_theirs_computes_what_it_does_there(pair):
    base, folder, want = pair
    with orion_ane.load(str(base), device="cpu", threads=1) as model:
        alone = model.logits(IDS)
        model.set_adapter(model.load_adapter(folder))
        found = model.logits(IDS)
        assert np.abs(found - want).max() <= ALIKE * np.abs(want).max()
        assert np.abs(found - alone).max() > 0.1
        assert (model.logits(IDS, adapter=None) == alone).all()


def test_what_is_written_here_is_read_there(pair, tmp_path):
    base, folder, want = pair
    adapter = load_adapter(folder, load_checkpoint(base).config)
    save_adapter(tmp_path / "ours", adapter)
    found = logits_of(theirs_again(base, tmp_path / "ours"))
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()


def test_a_fused_model_has_the_logits_of_both(pair, tmp_path):
    base, folder, want = pair
    checkpoint = load_checkpoint(base)
    adapter = load_adapter(folder, checkpoint.config)
    config, tensors = merged(adapter, checkpoint.tensors)
    export(tmp_path / "fused", config, tensors)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "fused")
    assert np.abs(logits_of(model.eval()) - want).max() <= ALIKE * np.abs(want).max()
    with orion_ane.load(str(tmp_path / "fused"), device="cpu", threads=1) as ours:
        assert np.abs(ours.logits(IDS) - want).max() <= ALIKE * np.abs(want).max()


@pytest.mark.parametrize(("family", "own"), [("llama", True), ("llama", False), ("gpt2", True)])
def test_a_head_that_theirs_keeps_beside_a_low_rank_one_is_the_models(family, own, tmp_path):
    torch.manual_seed(7)
    base = llama() if family == "llama" else gpt2()
    base.save_pretrained(tmp_path / "base")
    settings = (LLAMA if family == "llama" else GPT2)["head"]
    model = adapted(base, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is kept
        model.save_pretrained(tmp_path / "adapter")
    want = logits_of(model)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = files.load_file(file)
    name = "base_model.model.lm_head.base_layer.weight"
    assert name in tensors
    if not own:  # as a base that was not tied has it
        hidden = model.get_base_model().model(torch.tensor([IDS])).last_hidden_state
        want = want + (hidden[0] @ torch.ones_like(tensors[name]).T).detach().numpy()
        tensors[name] = tensors[name] + 1
        files.save_file(tensors, file)
    with orion_ane.load(str(tmp_path / "base"), device="cpu", threads=1) as found:
        alone = found.logits(IDS)
        found.set_adapter(found.load_adapter(tmp_path / "adapter"))
        assert np.abs(found.logits(IDS) - want).max() <= ALIKE * np.abs(want).max()
        assert any("head whole" in note for note in found.notes) is not own
        if own:  # so that it can be summed with others
            assert (found.logits(IDS, adapter={"adapter": 0.0}) == alone).all()
    adapter = load_adapter(tmp_path / "adapter", load_checkpoint(tmp_path / "base").config)
    save_adapter(tmp_path / "ours", adapter)
    ours = files.load_file(tmp_path / "ours" / "adapter_model.safetensors")
    assert ours.keys() == tensors.keys()
    assert all(torch.equal(ours[key], tensor) for key, tensor in tensors.items())


def test_a_config_that_it_cannot_honour_is_refused_by_name(tmp_path):
    torch.manual_seed(7)
    base = gpt2()
    base.save_pretrained(tmp_path / "base")
    saved(adapted(base, GPT2["fused"]), tmp_path / "adapter")
    config = load_checkpoint(tmp_path / "base").config
    path = tmp_path / "adapter" / "adapter_config.json"
    document = json.loads(path.read_text())
    for name, value in (("use_dora", True), ("bias", "all"), ("foobar", 3)):
        path.write_text(json.dumps(document | {name: value}))
        with pytest.raises(ConfigError, match=name):
            load_adapter(path.parent, config)
    path.write_text(json.dumps(document | {"foobar": None}))
    (note,) = load_adapter(path.parent, config).notes
    assert "foobar" in note
