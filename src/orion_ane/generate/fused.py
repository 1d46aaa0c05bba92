"""Whether a model with an adapter in its weights computes what the two do together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orion_ane.generate.model import Model, load
from orion_ane.lora.adapter import Adapter
from orion_ane.models.weights import Checkpoint
from orion_ane.runtime.registry import backend

ALIKE = 1e-4
"""Of the largest logit, in fp32: what other orders of sums may come to."""
TOKENS = 64


def logit_error(base: Checkpoint, adapter: Adapter, fused: Path) -> float:
    """The largest difference of logits, as a part of the largest, over ids all over the vocabulary.

    Args:
        base: the model.
        adapter: its.
        fused: the folder of both.
    """
    config = base.config
    count = min(TOKENS, config.context)
    ids = [int(i) for i in np.random.default_rng(0).integers(0, config.vocab, count)]
    with Model(base, backend=backend("cpu"), weights="fp32") as worn:
        worn.add_adapter(adapter, name=adapter.name)
        want = worn.logits(ids, adapter=adapter.name)
    with load(str(fused), device="cpu", weights="fp32") as made:
        found = made.logits(ids)
    return float(np.abs(found - want).max() / np.abs(want).max())
