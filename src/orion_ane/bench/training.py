"""Training: a step of the Stories110M shape, its parts, its memory, and peers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from orion_ane.bench.harness import Samples, Work, interleaved
from orion_ane.bench.inference import peers_work
from orion_ane.bench.peers import Peer
from orion_ane.bench.shapes import SHAPES

OWN = Path(__file__).with_name("own_training.py")
SHAPE, SEQ, MICROBATCHES = "llama-110m", 256, 4
TRAINING, PEAK = "training", "peak memory"
BRAIN = "training bf16"
PARTS = (TRAINING, "step", "forward", "backward", "weight grad", "optimizer", "update")
UPDATE_SHARE = "training, steps in the time of updates"


def work_of(shape: str, seq: int, threads: int, microbatches: int = MICROBATCHES) -> dict[str, Any]:
    """What we, and peers, are asked for: a peer takes one microbatch at a time."""
    config = SHAPES[shape]
    work = peers_work(config, 1, 1, origin=shape, threads=threads)
    ids = np.random.default_rng(0).integers(0, config.vocab, seq + 1).tolist()
    more = {"shape": shape, "seq": seq, "microbatches": microbatches, "ids": ids}
    return work | more | {"what": "training"}


def measure(work: dict[str, Any], peers: list[Peer], *, runs: int) -> Samples:
    """Our steps and the peers' in turn, each in a process of its own.

    Beside peers in bf16 we take steps in bf16 too.
    Ratios are of tokens a second without AdamW, which is a row of its own, and of peak memory.
    """
    units = dict.fromkeys(PARTS, "tokens/s") | {PEAK: "GB"}
    units |= {f"{row}, {p.name}": units[row] for p in peers for row in (TRAINING, PEAK)}
    samples = Samples(units)
    with ExitStack() as stack:
        works: dict[str, Work] = {"orion": stack.enter_context(Peer(OWN, work))}
        brains = [peer.name for peer in peers if peer.name.endswith("bf16")]
        if brains:
            units[BRAIN] = "tokens/s"
            works[BRAIN] = stack.enter_context(Peer(OWN, work | {"numerics": "bf16"}))
        works |= {peer.name: peer for peer in peers}

        def take(name: str, found: Any) -> None:
            if name == BRAIN:
                samples.add({BRAIN: found[TRAINING]})
                return
            mine = name == "orion"
            samples.add(found if mine else {f"{row}, {name}": x for row, x in found.items()})

        interleaved(works, runs, take)
    rates = samples.rates
    for peer in peers:
        theirs = f"{TRAINING}, {peer.name}"
        samples.ratio(f"{TRAINING}, over {peer.name}", rates[theirs], rates[TRAINING])
        if peer.name in brains:
            samples.ratio(f"{BRAIN}, over {peer.name}", rates[theirs], rates[BRAIN])
        # The other way round, as less memory is better and every ratio's more is.
        samples.ratio(
            f"{PEAK} of {peer.name} over ours", rates[PEAK], rates[f"{PEAK}, {peer.name}"]
        )
    samples.ratio(UPDATE_SHARE, rates["step"], rates["update"])
    return samples
