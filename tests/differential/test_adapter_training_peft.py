"""Gradients of A and B against PEFT and torch."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle
from peft_models import GPT2, LLAMA, adapted, gpt2, llama, saved

from orion_ane.lora.adapted import Adapted, tensors_of
from orion_ane.lora.files import load_adapter
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.runtime.registry import backend
from orion_ane.train.network import Batch, Network
from orion_ane.train.updates import updates

torch = oracle("torch")
oracle("peft")

ROWS = [[5, 17, 3, 60, 42, 8, 9, 1, 33], [2, 2, 50, 31, 7, 11, 90, 4, 6]]
CASES = [("llama", "all"), ("llama", "head"), ("llama", "patterns"), ("gpt2", "all")]


@pytest.fixture(params=CASES, ids=" ".join)
def pair(request, tmp_path):
    family, name = request.param
    torch.manual_seed(3)
    base, settings = (llama(), LLAMA[name]) if family == "llama" else (gpt2(), GPT2[name])
    base.save_pretrained(tmp_path / "base")
    model = adapted(base, settings)
    saved(model, tmp_path / "adapter")
    checkpoint = load_checkpoint(tmp_path / "base")
    return model, checkpoint, load_adapter(tmp_path / "adapter", checkpoint.config)


def theirs(model):
    """The mean loss and its gradients, by our names."""
    logits = model.double()(torch.tensor(ROWS)[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(ROWS)[:, 1:].flatten()
    )
    loss.backward()
    found = {}
    for name, tensor in model.named_parameters():
        if "lora_" in name:
            key = name.removeprefix("base_model.model.").removesuffix(".default.weight")
            found[key] = tensor.grad.numpy()
    return loss.item(), found


def test_gradients_of_a_and_b_are_theirs_and_nothing_else_has_any(pair):
    model, checkpoint, adapter = pair
    loss, want = theirs(model)
    decoder = Adapted(decoder_of(checkpoint.config), adapter.config)
    masters = {name: np.array(array) for name, array in tensors_of(adapter).items()}
    device = backend("cpu", threads=1)
    network = Network(
        decoder,
        masters,
        updates("input", device),
        host=None,
        lanes=8,
        frozen=checkpoint.tensors,
        threads=1,
    )
    before = device.compiles, device.loads
    found = network.gradients([Batch.of(ROWS)], masters)
    assert found.mean() == pytest.approx(loss, rel=1e-5)
    assert found.arrays.keys() == want.keys()
    most = max(np.abs(array).max() for array in want.values())
    for name, array in want.items():
        assert np.abs(found.arrays[name] - array).max() <= 1e-4 * most, name
    for master in masters.values():
        np.multiply(master, 0.5, out=master)
    network.renew(masters)
    assert network.loss([Batch.of(ROWS)], masters).mean() != pytest.approx(loss, rel=1e-3)
    assert (device.compiles, device.loads) == before
    network.close()
