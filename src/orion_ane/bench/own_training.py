"""Our side of `orion bench training`, in a process of its own: steps of a new model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from orion_ane.bench.harness import Rates
from orion_ane.bench.shapes import SHAPES, random_checkpoint
from orion_ane.bench.turns import PEAK, peak_gb, serve
from orion_ane.host.schedule import Schedule
from orion_ane.models.build import decoder_of
from orion_ane.runtime.backend import numerics_of
from orion_ane.runtime.registry import backend
from orion_ane.train.batch import Batch
from orion_ane.train.step import Recipe, Trainer

APART = ("optimizer_ms", "update_ms", "exchange_ms")
"""What of a step is no gradient."""


def prepare(work: Mapping[str, Any]) -> tuple[str, Callable[[], Rates]]:
    """A trainer, and a step of so many microbatches."""
    config, seq, micro = SHAPES[work["shape"]], work["seq"], work["microbatches"]
    tensors = {
        name: array.astype(np.float32)
        for name, array in random_checkpoint(config, "random").tensors.items()
    }
    device = backend("cpu", threads=work["threads"], numerics=work.get("numerics"))
    recipe = Recipe(Schedule(1e-4, 1000))
    decoder = decoder_of(config)
    trainer = Trainer(decoder, tensors, device, recipe, seq=seq, threads=work["threads"])
    del tensors
    ids = np.random.default_rng(0).integers(0, config.vocab, (micro, 1, seq + 1))
    batches = [Batch.of(rows) for rows in ids]

    def once() -> Rates:
        return rates_of(trainer.step(batches).timings, micro * seq) | {PEAK: peak_gb()}

    how = f"orion on {device.name}, {numerics_of(device)}"
    return f"{how}, {micro} microbatches of {seq} tokens a step", once


def rates_of(timings: Mapping[str, float], tokens: int) -> dict[str, float]:
    """Tokens a second of a step's parts; `training` is all but AdamW and the update."""
    gradients = timings["step_ms"] - sum(timings.get(part, 0.0) for part in APART)
    parts = {"training": gradients, "step": timings["step_ms"]} | {
        name.removesuffix("_ms").replace("_", " "): ms
        for name, ms in timings.items()
        if name not in ("step_ms", "exchange_ms")
    }
    return {name: tokens / max(ms, 1e-3) * 1000 for name, ms in parts.items()}


if __name__ == "__main__":
    serve(prepare)
