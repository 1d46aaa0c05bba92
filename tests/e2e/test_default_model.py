"""The model that the package carries: that it runs, what it is, and that its record is true."""

from __future__ import annotations

import hashlib
import json
import math
import runpy
from pathlib import Path

import pytest

import orion_ane
from orion_ane.models.registry import CARRIED, DEFAULT

ROOT = Path(__file__).resolve().parents[2]
RECORD = json.loads((CARRIED / "training.json").read_text(encoding="utf-8"))
STORIES = ROOT / "tests" / "golden" / "held_out_stories.txt"
FP32_SUMS = 1e-4  # of losses, in another order of sums on another machine
FP16_SUMS = 0.01

tool = runpy.run_path(str(ROOT / "tools" / "story_model.py"))


@pytest.fixture(scope="module")
def model():
    with orion_ane.load(device="cpu") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def stories():
    return tool["documents"](STORIES.read_text(encoding="utf-8"))


def mean_loss(model, stories):
    return sum(model.loss(story) for story in stories) / len(stories)


def test_it_tells_the_story_of_its_record_without_any_download(model, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    greedy = RECORD["greedy"]
    found = model.generate(greedy["prompt"], max_tokens=greedy["max_tokens"])
    assert found.text == greedy["text"]


def test_its_loss_on_stories_it_never_saw_is_that_of_its_record(model, stories):
    assert mean_loss(model, stories) == pytest.approx(RECORD["loss_of_stories"], abs=FP32_SUMS)


def test_it_is_as_good_on_the_device_it_was_trained_on(stories):
    with orion_ane.load(device="emulator", target="strict") as device:
        found = device.loss(stories[0])
    with orion_ane.load(device="cpu") as host:
        assert found == pytest.approx(host.loss(stories[0]), abs=FP16_SUMS)


def test_its_record_is_of_these_weights_and_of_a_run_that_learnt():
    held = RECORD["held_out_loss"]
    data = (CARRIED / "model.safetensors").read_bytes()
    assert hashlib.sha256(data).hexdigest() == RECORD["weights_sha256"]
    assert RECORD["steps"] >= 1000
    assert RECORD["skipped"] == {"emulator": 0, "cpu": 0}
    assert math.log(RECORD["vocabulary"]) - held["emulator"] >= 1.5
    assert held["emulator"] == pytest.approx(held["cpu"], rel=0.02)
    assert held["carried"] == pytest.approx(held["emulator"], abs=FP16_SUMS)


def test_it_is_small(model):
    assert sum(file.stat().st_size for file in CARRIED.iterdir()) <= 2_000_000
    assert model.config.vocab == model.tokenizer.vocab_size == RECORD["vocabulary"] <= 1024


def test_its_card_names_its_text_its_licence_and_its_losses():
    card = (CARRIED / "README.md").read_text(encoding="utf-8")
    for word in (DEFAULT, "MIT", "stories260K", "held-out", "Limits"):
        assert word in card
    for loss in RECORD["held_out_loss"].values():
        assert f"{loss:.3f}" in card


def test_its_tokenizer_is_trained_by_the_tool_from_its_text(data_dir, tmp_path, stories):
    text = data_dir / "stories260K" / "samples.txt"
    assert hashlib.sha256(text.read_bytes()).hexdigest() == RECORD["text_sha256"]
    tool["prepare"](text, tmp_path)
    made = json.loads((tmp_path / "shape" / "tokenizer.json").read_text(encoding="utf-8"))
    assert made == json.loads((CARRIED / "tokenizer.json").read_text(encoding="utf-8"))
    held_out = tool["documents"]((tmp_path / "held-out.txt").read_text(encoding="utf-8"))
    assert stories == held_out[: len(stories)]
    learnt = (tmp_path / "learnt.txt").read_text(encoding="utf-8")
    assert not [story for story in stories if story in learnt]


def test_transformers_reads_it_and_tells_the_same_story(model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(CARRIED, dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(CARRIED)
    read = tokenizer(RECORD["greedy"]["prompt"], return_tensors="pt")
    assert read["input_ids"][0].tolist() == model.tokenizer.prompt_ids(RECORD["greedy"]["prompt"])
    count = RECORD["greedy"]["max_tokens"]
    ids = theirs.generate(**read, max_new_tokens=count, do_sample=False)[0]
    told = tokenizer.decode(ids, skip_special_tokens=True)
    assert told == RECORD["greedy"]["prompt"] + RECORD["greedy"]["text"]


def test_a_trained_model_is_shipped_with_every_number_in_fp16(tmp_path):
    with orion_ane.load(device="cpu") as carried:
        text = carried.generate("One day", max_tokens=8).text
    tool["ship"](CARRIED, tmp_path / "again")
    name = "model.safetensors"
    assert (tmp_path / "again" / name).read_bytes() == (CARRIED / name).read_bytes()
    with orion_ane.load(str(tmp_path / "again"), device="cpu") as again:
        assert again.generate("One day", max_tokens=8).text == text
