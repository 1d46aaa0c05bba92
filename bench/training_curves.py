"""A figure of two runs of `orion train`, beside each other: the losses of their steps.

    python bench/training_curves.py OUT.png EXACT.jsonl FP32.jsonl [--record training.json]

The runs' files are those of `--log-file`.  A line is the mean of the last twentieth of the steps,
since a step's own text varies more than two arithmetics do.  With a record, the held-out losses of
its `curve`, rows of step and loss of each run, are drawn as points.  Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

NAMES = ("emulator, exact", "cpu, fp32")
COLOURS = ("#c0392b", "#1f4e79")


def losses(log: Path) -> tuple[list[int], list[float]]:
    """The steps of a run that learnt something, and the loss of each."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found = [(line["step"], line["loss"]) for line in lines if "step_ms" in line]
    return [step for step, _ in found], [loss for _, loss in found]


def draw(out: Path, logs: list[Path], record: Path | None) -> None:
    """Write the figure."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    points = [] if record is None else json.loads(record.read_text(encoding="utf-8"))["curve"]
    for i, (log, name, colour) in enumerate(zip(logs, NAMES, COLOURS, strict=True)):
        steps, found = losses(log)
        width = max(len(steps) // 20, 1)
        mean = np.convolve(found, np.full(width, 1 / width), "valid")
        style = "--" if i else "-"
        axes.plot(steps[width - 1 :], mean, style, color=colour, lw=1.4, label=f"{name}: learnt")
        if points:
            marks = {"marker": "+" if i else "o", "ms": 8 if i else 4, "ls": "none"}
            at, held = [p[0] for p in points], [p[1 + i] for p in points]
            axes.plot(at, held, color=colour, label=f"{name}: held out", **marks)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a token")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(out, dpi=110)


def main() -> None:
    """Draw what the arguments name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the PNG")
    parser.add_argument("logs", type=Path, nargs=2, help="on the emulator, and in fp32")
    parser.add_argument("--record", type=Path, help="held-out losses by step")
    asked = parser.parse_args()
    draw(asked.out, asked.logs, asked.record)


if __name__ == "__main__":
    main()
