"""Generation and training on device `ane`: what the emulator gives, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from stand_in_build import environment
from toys import toy_gpt2, toy_llama

import orion_ane
from orion_ane.cli.main import main
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine


@pytest.fixture(autouse=True)
def on_the_emulator(workers, stand_in, monkeypatch) -> None:
    """The stand-in computes as the emulator's default target does."""
    for name, value in environment(stand_in, target="strict").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ORION_CACHE", "off")


@pytest.mark.parametrize("toy", [toy_llama, toy_gpt2])
def test_generation_gives_the_emulators_logits(toy, tmp_path):
    model = str(toy(tmp_path / "m"))
    ids, logits = [], []
    for device in ("emulator", "ane"):
        with orion_ane.load(model, device=device) as loaded:
            ids.append(loaded.generate([1, 2, 3], max_tokens=6).ids)
            logits.append(loaded.logits([1, 2, 3, 4]))
            assert (loaded.device, loaded.target) == (device, "strict")
    assert ids[0] == ids[1]
    np.testing.assert_array_equal(logits[0], logits[1])


@pytest.fixture
def learnt(tmp_path, capfd, monkeypatch) -> Iterator:
    """Trains a toy; neither device shows ranges, by which gradients' scales are chosen."""
    monkeypatch.setattr("orion_ane.train.placed.shows_ranges", lambda _: False)
    tokens = np.random.default_rng(3).integers(3, 200, 400).astype("<u2")
    (tmp_path / "learnt.bin").write_bytes(tokens.tobytes())
    model = str(toy_llama(tmp_path / "toy"))

    def train(device: str, updates: str) -> list[float]:
        words = ["--steps", "2", "--batch", "1", "--seq", "32", "--json", "--updates", updates]
        words += ["--data", str(tmp_path / "learnt.bin"), "--model", model, "--device", device]
        capfd.readouterr()
        code = main(["train", *words])
        out, err = capfd.readouterr()
        assert code == 0, err
        lines = [json.loads(line) for line in out.splitlines()]
        return [line["loss"] for line in lines if "type" not in line]

    return train


@pytest.mark.parametrize("updates", ["donor", "input", "recompile"])
def test_training_gives_the_emulators_losses(learnt, updates):
    want = learnt("emulator", updates)
    assert len(want) == 2
    assert learnt("ane", updates) == want


def test_reload_is_refused_where_the_device_keeps_its_weights(learnt, capfd):
    with pytest.raises(AssertionError, match="runs on with the weights of before"):
        learnt("ane", "reload")


def test_reload_trains_where_the_device_takes_new_weights(learnt, monkeypatch):
    want = learnt("emulator", "donor")
    monkeypatch.setenv("STANDIN_SWITCHES", "reload=1")
    assert learnt("ane", "reload") == want


def test_a_worker_that_is_killed_in_training_does_not_show(learnt, monkeypatch):
    want = learnt("emulator", "donor")
    ran = NeuralEngine.repeated
    count = [0]

    def killing(self, do):
        count[0] += 1
        if count[0] == 5:
            self.process._child.kill()
        return ran(self, do)

    monkeypatch.setattr(NeuralEngine, "repeated", killing)
    assert learnt("ane", "donor") == want
    assert count[0] > 5
