"""Commands on device `ane`: they give what they give on the emulator, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from stand_in_build import environment
from toys import toy_llama

import orion_ane
from orion_ane.cli.main import main


@pytest.fixture(autouse=True)
def on_the_emulator(workers, stand_in, monkeypatch) -> None:
    """The stand-in computes as the emulator's default target does."""
    for name, value in environment(stand_in, target="strict").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ORION_CACHE", "off")


def test_generation_gives_the_emulators_logits(tmp_path):
    model = str(toy_llama(tmp_path / "m"))
    ids, logits = [], []
    for device in ("emulator", "ane"):
        with orion_ane.load(model, device=device) as loaded:
            ids.append(loaded.generate([1, 2, 3], max_tokens=6).ids)
            logits.append(loaded.logits([1, 2, 3, 4]))
            assert (loaded.device.split()[0], loaded.target) == (device, "strict")
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


def test_training_gives_the_emulators_losses(learnt):
    want = learnt("emulator", "donor")
    assert len(want) == 2
    assert learnt("ane", "donor") == want


def test_reload_is_refused_where_the_device_keeps_its_weights(learnt, capfd):
    with pytest.raises(AssertionError, match="runs on with the weights of before"):
        learnt("ane", "reload")
