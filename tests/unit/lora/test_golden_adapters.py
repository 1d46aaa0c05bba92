"""Real adapters, made by PEFT beside their models, give what they gave there in float64."""

from __future__ import annotations

import json

import numpy as np
import pytest

import orion_ane

FP32 = 1e-4  # of fp32 against float64, on logits of up to some tens


def close(logits, want):
    """A row of logits beside what is told of it."""
    assert np.abs(logits[:8] - want["first8"]).max() <= FP32
    assert np.abs(logits[want["top5_ids"]] - want["top5"]).max() <= FP32


@pytest.mark.parametrize("way", ["worn", "summed"])
def test_the_adapter_of_stories260k_tells_of_hansel_and_gretel(data_dir, way):
    folder = data_dir / "lora-stories260K"
    golden = json.loads((folder / "golden.json").read_text())
    model = data_dir / "stories260K" / "stories260K.bin"
    with orion_ane.load(str(model), device="cpu", adapters=0 if way == "worn" else 16) as m:
        name = m.load_adapter(folder)
        m.set_adapter({name: 1.0} if way == "summed" else name)
        ids = golden["greedy"]["ids"]
        found = m.logits(ids)
        for want in golden["logits"]:
            close(found[want["pos"]], want)
        if way == "worn":
            prompt = golden["greedy"]["prompt_ids"]
            made = m.generate(prompt, max_tokens=len(ids) - len(prompt), temperature=0)
            assert [*prompt, *made.ids] == ids
            m.set_adapter(None)
            assert np.abs(m.logits(ids) - found).max() > 1


def test_the_adapter_of_gpt2_mini_turns_from_grimm_to_lily(data_dir):
    folder = data_dir / "lora-gpt2-mini"
    golden = json.loads((folder / "golden.json").read_text())
    with orion_ane.load(str(data_dir / "gpt2-mini"), device="cpu", weights="fp32") as m:
        m.set_adapter(m.load_adapter(folder))
        for case in golden["cases"]:
            ids = [*case["prompt_ids"], *case["greedy_ids"]]
            found = m.logits(ids)
            for want in case["logits"]:
                close(found[want["pos"]], want)
            made = m.generate(case["prompt_ids"], max_tokens=len(case["greedy_ids"]), temperature=0)
            assert list(made.ids) == case["greedy_ids"]
            assert m.tokenizer.decode(ids) == case["text"]
