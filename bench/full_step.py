"""One training step of a full-size model, and where its time goes.

    python bench/full_step.py --device cpu
    python bench/full_step.py --device emulator

The shape is that of Stories110M, its numbers and the ids it learns from are random: neither changes
how long a step takes.  The first step, in which the engine may compile its loops, is not counted;
of the others the median is printed as one line of JSON, in milliseconds by part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

from orion_ane.bench.shapes import SHAPES
from orion_ane.host.schedule import Schedule
from orion_ane.models.build import decoder_of
from orion_ane.models.scratch import draw
from orion_ane.runtime.registry import backend
from orion_ane.train.batch import Batch
from orion_ane.train.step import Recipe, Report, Trainer

PARTS = ("forward", "backward", "weight_grad", "optimizer", "update", "step")


def steps(device: str, *, seq: int, rows: int, count: int, threads: int | None) -> list[Report]:
    """The steps after the first one."""
    config = SHAPES["llama-110m"]
    rng = np.random.default_rng(0)
    made = backend(device, threads=threads)
    trainer = Trainer(
        decoder_of(config),
        draw(config, seed=0),
        made,
        Recipe(Schedule(5e-4, count + 1), loss_scale=16.0),
        seq=seq,
        host=None if made.target is None else backend("cpu", threads=threads),
        threads=threads,
    )
    try:
        batches = [Batch.of(rng.integers(config.vocab, size=(rows, seq + 1)))]
        return [trainer.step(batches) for _ in range(count + 1)][1:]
    finally:
        trainer.close()


def main() -> None:
    """Print the split."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "emulator"], required=True)
    parser.add_argument("--seq", type=int, default=256, help="tokens of a row")
    parser.add_argument("--rows", type=int, default=1, help="of the step's one microbatch")
    parser.add_argument("--steps", type=int, default=1, help="that are measured")
    parser.add_argument("--threads", type=int, help="of device and host; all by default")
    asked = parser.parse_args()
    started = time.perf_counter()
    found = steps(
        asked.device, seq=asked.seq, rows=asked.rows, count=asked.steps, threads=asked.threads
    )
    print(
        json.dumps(
            {
                "device": asked.device,
                "tokens": found[0].tokens,
                "loss": found[-1].loss,
                "skipped": sum(report.skipped is not None for report in found),
                "all_s": round(time.perf_counter() - started, 1),
                **{
                    f"{part}_ms": round(statistics.median(r.timings[f"{part}_ms"] for r in found))
                    for part in PARTS
                },
            }
        )
    )


if __name__ == "__main__":
    main()
