"""How near a device's arithmetic comes to fp32 on stories260K's golden texts.

    python bench/golden_stories.py

The test data is in the folder that ORION_TEST_DATA names, or beside the repository, as in the
tests.  Prints for each device: the largest error of a logit against fp32 on `cpu`, at how many
positions the likeliest token is the same, and how many golden prompts go on to the golden text.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

import orion_ane
from orion_ane.generate.model import Model

DATA = Path(os.environ.get("ORION_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
MODEL = DATA / "stories260K" / "stories260K.bin"
DEVICES = (
    {"device": "emulator", "target": "strict", "numerics": "exact"},
    {"device": "emulator", "target": "m5", "numerics": "exact"},
    {"device": "emulator", "target": "paper", "numerics": "exact"},
    {"device": "emulator", "target": "strict", "numerics": "fp16"},
)
LENGTH = 64  # tokens of a golden text, the prompt's included and BOS not


def goes_on(model: Model, prompt: str, text: str) -> bool:
    """Whether the model tells the same story."""
    read = len(model.tokenizer.prompt_ids(prompt)) - 1
    return prompt + model.generate(prompt, max_tokens=LENGTH - read).text == text


def main() -> None:
    """Compare each device with fp32."""
    golden = json.loads((MODEL.parent / "golden.json").read_text())
    texts = golden["run_c_prompts_t0_n64"]
    with orion_ane.load(str(MODEL), device="cpu") as reference:
        every = [golden["greedy"]["ids"], *map(reference.tokenizer.prompt_ids, texts.values())]
        wanted = [reference.logits(ids) for ids in every]
    for device in DEVICES:
        with orion_ane.load(str(MODEL), **device) as model:
            got = [model.logits(ids) for ids in every]
            same = sum(goes_on(model, prompt, text) for prompt, text in texts.items())
        error = max(float(np.abs(x - y).max()) for x, y in zip(got, wanted, strict=True))
        alike = sum(
            int((x.argmax(1) == y.argmax(1)).sum()) for x, y in zip(got, wanted, strict=True)
        )
        print(
            f"{' '.join(device.values())}: logits within {error:.3f}, likeliest token the same at "
            f"{alike} of {sum(map(len, every))}, {same} of {len(texts)} texts"
        )


if __name__ == "__main__":
    main()
