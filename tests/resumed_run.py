"""A small run of training that can be resumed, here or, as a script, in a process of its own."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import orion_ane
from orion_ane.host.schedule import Schedule
from orion_ane.models.build import decoder_of
from orion_ane.models.config import LlamaConfig
from orion_ane.models.weights import shapes
from orion_ane.train.checkpoint import Checkpoints, Saved
from orion_ane.train.corpus import Tokens
from orion_ane.train.data import Batches, Windows
from orion_ane.train.loop import Loop, Plan, settings_of
from orion_ane.train.state import State
from orion_ane.train.step import Recipe, Trainer

CONFIG = LlamaConfig(
    vocab=40, context=16, dim=12, layers=2, heads=2, kv_heads=1, head_dim=6, hidden=20, tied=True
)
STEPS, SEQ = 10, 8


def started(
    device: str,
    saved: Saved | None = None,
    *,
    steps: int = STEPS,
    shape: str = "cosine",
    loss_scale: float = 16.0,
    threads: int = 1,
) -> tuple[Trainer, Batches]:
    """A trainer and its data, at the start or where a checkpoint stands."""
    rng = np.random.default_rng(7)
    ids = rng.integers(0, CONFIG.vocab, 200).astype(np.uint16)
    batches = Batches(Windows([Tokens("made up", ids)], SEQ), batch=2, seed=3)
    recipe = Recipe(Schedule(1e-2, steps, shape, warmup=2), loss_scale=loss_scale)
    if saved is None:
        start = {
            name: (rng.normal(size=of) * 0.2 + (len(of) == 1)).astype(np.float32)
            for name, of in shapes(CONFIG).items()
        }
    else:
        saved.want("this run", CONFIG, settings_of(recipe, batches, Plan()))
        start, _ = saved.state, batches.seek(saved.cursor)
    made = orion_ane.backend(device, threads=threads)
    host = None if device == "cpu" else orion_ane.backend("cpu", threads=threads)
    decoder = decoder_of(CONFIG)
    trainer = Trainer(decoder, start, made, recipe, seq=SEQ, host=host, threads=threads)
    return trainer, batches


def loop_of(
    run: tuple[Trainer, Batches], checkpoints: Checkpoints | None, *, save_every: int = 0
) -> Loop:
    """The loop of a run."""
    return Loop(*run, Plan(save_every=save_every), checkpoints=checkpoints)


def digest(state: State) -> str:
    """Of all masters."""
    found = hashlib.sha256()
    for array in state.masters.values():
        found.update(array.tobytes())
    return found.hexdigest()


def main() -> None:
    """Resume the run of a folder, and say how it went on."""
    kept = Checkpoints(Path(sys.argv[1]))
    run = started("cpu", kept.newest(), threads=2)
    losses = [report.loss for report in loop_of(run, kept).run()]
    print(json.dumps({"losses": losses, "digest": digest(run[0].state)}))


if __name__ == "__main__":
    main()
