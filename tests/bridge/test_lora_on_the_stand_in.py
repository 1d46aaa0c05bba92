"""An adapter is learnt, evaluated and worn on device `ane` as on the emulator, bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from stand_in_build import environment
from toys import toy_llama

from orion_ane.cli.main import main

FIXED = {"base": "strict", "behaviour": {"reload": "refused", "donor": "refused"}}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A toy of one layer, and tokens; no device shows ranges, which choose gradients' scales."""
    monkeypatch.setattr("orion_ane.train.placed.shows_ranges", lambda _: False)
    monkeypatch.setenv("ORION_CACHE", "off")
    tokens = np.random.default_rng(3).integers(3, 200, 400).astype("<u2")
    (tmp_path / "learnt.bin").write_bytes(tokens.tobytes())
    return toy_llama(tmp_path / "toy")


@pytest.mark.parametrize(
    "fixed",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["strict and worn", "no other weights"],
)
def test_learning_and_wearing_are_the_emulators(
    fixed, model, workers, stand_in, tmp_path, monkeypatch, capfd
):
    """Also where the target takes other weights in no way: an adapter needs none.

    `pytest -m slow tests/bridge/test_lora_on_the_stand_in.py` wears it too: ten seconds of CPU.
    """
    target = "strict"
    if fixed:
        (tmp_path / "fixed.json").write_text(json.dumps(FIXED))
        target = str(tmp_path / "fixed.json")
    for name, value in environment(stand_in, target=target).items():
        monkeypatch.setenv(name, value)

    def lines(*words):
        capfd.readouterr()
        code = main([*map(str, words)])
        out, err = capfd.readouterr()
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def everything(device):
        where = ["--device", device, "--target", target, "--model", model, "--json"]
        out = tmp_path / device
        words = ["--steps", 2, "--batch", 1, "--seq", 32, "--rank", 4, "--dropout", "0.1"]
        data = ["--data", tmp_path / "learnt.bin"]
        *steps, _ = lines("lora", "train", *where, *words, *data, "--lr", "0.05", "--export", out)
        counts = {(line["compiles"], line["loads"], line["reloads"]) for line in steps}
        assert len(counts) == 1
        tensors = load_file(out / "adapter_model.safetensors")
        assert all(array.any() for array in tensors.values())
        worn = []
        if not fixed:
            prompt = ["--prompt", "abc", "--max-tokens", 3, "--temperature", 0]
            worn = lines("generate", *where, *prompt, "--adapter", out)[0]["ids"]
        return [line["loss"] for line in steps], tensors, worn

    want, found = everything("emulator"), everything("ane")
    assert found[0] == want[0]
    assert found[1].keys() == want[1].keys()
    for name, array in want[1].items():
        np.testing.assert_array_equal(found[1][name], array)
    assert found[2] == want[2]
