"""Gradients of A and B against PEFT and torch, without dropout and with the same of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles import oracle
from peft_models import GPT2, LLAMA, adapted, gpt2, llama, saved

from orion_ane.lora.adapted import Adapted, tensors_of
from orion_ane.lora.files import load_adapter
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.runtime.registry import backend
from orion_ane.train.batch import Batch
from orion_ane.train.network import Network
from orion_ane.train.updates import updates

torch = oracle("torch")
oracle("peft")

ROWS = [[5, 17, 3, 60, 42, 8, 9, 1, 33], [2, 2, 50, 31, 7, 11, 90, 4, 6]]
PLAIN = [("llama", "all"), ("llama", "head"), ("llama", "patterns"), ("gpt2", "all")]
DROPS = [("llama", "all"), ("gpt2", "head")]
CASES = [(*one, 0.0) for one in PLAIN] + [(*one, 0.3) for one in DROPS]


class Masked(torch.nn.Module):
    """In the place of PEFT's dropout, whose numbers nobody else can draw."""

    def __init__(self, mask):
        super().__init__()
        self.mask = torch.tensor(mask)

    def forward(self, x):
        return x * self.mask.to(x.dtype)


@pytest.fixture(params=CASES, ids=lambda case: " ".join(map(str, case)))
def pair(request, tmp_path):
    family, name, rate = request.param
    torch.manual_seed(3)
    base, settings = (llama(), LLAMA[name]) if family == "llama" else (gpt2(), GPT2[name])
    settings = settings | {"lora_dropout": rate}
    base.save_pretrained(tmp_path / "base")
    model = adapted(base, settings)
    saved(model, tmp_path / "adapter")
    checkpoint = load_checkpoint(tmp_path / "base")
    return model, checkpoint, load_adapter(tmp_path / "adapter", checkpoint.config)


def with_masks(model, dropout):
    """The model with the masks of a run's rows from 5 on; `dropout` counts canonical columns."""
    for name, module in model.named_modules():
        if (name := name.removeprefix("base_model.model.") + ".lora_dropout") in dropout.ports:
            assert isinstance(module.lora_dropout["default"], torch.nn.Dropout)
            rows = [dropout.mask(name, row=5 + i, lanes=8)[0, :, 0].T for i in range(len(ROWS))]
            order = dropout.ports[name].order
            mask = np.stack(rows)
            if order is not None:
                mask[..., order] = mask.copy()
            module.lora_dropout["default"] = Masked(mask)
    return model  # not in training: GPT-2 has dropout of its own


def theirs(model):
    """The mean loss and its gradients, by our names."""
    logits = model.double()(torch.tensor(ROWS)[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(ROWS)[:, 1:].flatten()
    )
    model.zero_grad()
    loss.backward()
    found = {}
    for name, tensor in model.named_parameters():
        if "lora_" in name:
            key = name.removeprefix("base_model.model.").removesuffix(".default.weight")
            found[key] = tensor.grad.numpy()
    return loss.item(), found


def test_gradients_of_a_and_b_are_theirs_and_nothing_else_has_any(pair):
    model, checkpoint, adapter = pair
    decoder = Adapted(decoder_of(checkpoint.config), adapter.config)
    dropout = decoder.dropout(seed=11)
    alone = theirs(model.eval())[0]
    loss, want = theirs(model if dropout is None else with_masks(model, dropout))
    masters = {name: np.array(array) for name, array in tensors_of(adapter).items()}
    device = backend("cpu", threads=1)
    network = Network(
        decoder,
        masters,
        updates("input", device),
        host=None,
        lanes=8,
        frozen=checkpoint.tensors,
        dropout=dropout,
        threads=1,
    )
    before = device.compiles, device.loads
    batch = replace(Batch.of(ROWS), first=5)
    found = network.gradients([batch], masters)
    assert network.loss([batch], masters).mean() == pytest.approx(alone, rel=1e-5)
    assert (loss == alone) == (dropout is None)
    assert found.mean() == pytest.approx(loss, rel=1e-5)
    assert found.arrays.keys() == want.keys()
    most = max(np.abs(array).max() for array in want.values())
    for name, array in want.items():
        assert np.abs(found.arrays[name] - array).max() <= 1e-4 * most, name
    for master in masters.values():
        np.multiply(master, 0.5, out=master)
    network.renew(masters)
    assert network.loss([batch], masters).mean() != pytest.approx(alone, rel=1e-3)
    assert (device.compiles, device.loads) == before
    network.close()
