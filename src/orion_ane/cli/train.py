"""orion train: a model that learns from text, a line a step."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from orion_ane.cli.common import device_options, graceful_interrupt, leave_json, say, show
from orion_ane.train.config import TrainConfig
from orion_ane.train.peers import place
from orion_ane.train.run import Result, Trainer

EXAMPLE = """Examples:

  orion train --model orion-stories --data tales.txt --steps 300 --seq 128 --checkpoint-dir run/

  orion train --from-scratch config.json --model gpt2 --data tales.txt --steps 1000 --export new/
"""
_ENDS = {"interrupted": "interruption", "time": "--max-minutes"}
PAUSE_S = 1.0  # between lines for people
FILE = click.Path(path_type=Path)


@click.command(epilog=EXAMPLE)
@device_options
@click.option(
    "--target",
    metavar="NAME|FILE",
    help="The device that the emulator is: paper, strict, m1 to m5, or a target file.  "
    "[default: strict]",
)
@click.option(
    "--numerics",
    type=click.Choice(["exact", "fp16", "fp32", "bf16"]),
    help="How the device computes: the emulator as its target itself or rounding after every op, "
    "cpu in fp32, or with wide products in bf16, which needs torch; masters, sums and gradients "
    "of weights are fp32.  [default: exact on the emulator, fp32 on cpu]",
)
@click.option(
    "--data",
    multiple=True,
    required=True,
    type=FILE,
    help="Any text, .jsonl, or a token file (.bin, .u16, .u32); repeatable.",
)
@click.option(
    "--from-scratch",
    metavar="CONFIG.json|NAME",
    help="Train a new model of that shape; --model then names whose tokenizer it has.",
)
@click.option("--steps", type=int, required=True, help="The total, also on resume.")
@click.option("--batch", type=int, default=8, show_default=True, help="Rows of a microbatch.")
@click.option("--seq", type=int, help="Tokens of a row.  [default: 256, or the model's context]")
@click.option("--grad-accum", type=int, default=1, show_default=True, help="Microbatches a step.")
@click.option("--lr", type=float, default=5e-4, show_default=True, help="The highest rate.")
@click.option(
    "--schedule",
    type=click.Choice(["constant", "linear", "cosine"]),
    default="cosine",
    show_default=True,
    help="How the rate falls.",
)
@click.option("--warmup", type=int, default=0, show_default=True, help="Steps of its rise.")
@click.option(
    "--weight-decay",
    type=float,
    default=0.1,
    show_default=True,
    help="Of matrices; norms and biases never decay.",
)
@click.option(
    "--clip",
    type=float,
    default=1.0,
    show_default=True,
    help="The most that the norm of all gradients may be; 0 is no bound.",
)
@click.option(
    "--updates",
    type=click.Choice(["auto", "recompile", "donor", "reload", "input"]),
    default="auto",
    show_default=True,
    help="How new weights reach the programs; auto asks the target.",
)
@click.option("--checkpoint-dir", type=FILE, help="Where what is learnt is kept.")
@click.option(
    "--save-every",
    type=int,
    default=0,
    show_default=True,
    help="Steps between checkpoints; 0: at the end alone.",
)
@click.option("--resume", is_flag=True, help="Go on from the newest good checkpoint.")
@click.option("--export", type=FILE, help="Write the model: a folder, or *.bin for llama2.c.")
@click.option("--replace", is_flag=True, help="Put the export in the place of an older one.")
@click.option("--eval-data", multiple=True, type=FILE, help="Held-out text, read at the end.")
@click.option(
    "--eval-every",
    type=int,
    default=0,
    show_default=True,
    help="Steps between readings of --eval-data; 0: at the end alone.",
)
@click.option("--log-file", type=FILE, help="Add each step's JSON line to this file.")
@click.option("--plot", type=FILE, help="Draw loss and speed as PNG; needs the extra plot.")
@click.option(
    "--tensorboard",
    type=FILE,
    metavar="FOLDER",
    help="Write TensorBoard's events; needs the extra tensorboard.",
)
@click.option("--download", is_flag=True, help="Fetch a model that is not on this machine.")
@click.option("--max-minutes", type=float, help="Begin no step after so long.")
@click.option(
    "--peer-timeout",
    type=float,
    default=600.0,
    show_default=True,
    help="Seconds to wait for the other processes of a run, under torchrun.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the data's order and of a new model."
)
def train(*, as_json: bool, **asked: Any) -> int:
    """Train a model further on text, or a new one.

    With --json each step is a line on standard output, the last one of type summary.  Ctrl-C
    or SIGTERM ends with the step in hand, saves and exports, with exit status 130.
    """
    return run(TrainConfig(**asked), as_json=as_json)


def run(config: TrainConfig, *, as_json: bool) -> int:
    """Train as configured, and tell it; the exit code."""
    rank, size = place()
    if rank:
        leave_json()
    with (
        _progress(config, as_json=as_json, is_first=not rank) as progress,
        graceful_interrupt(patient=size > 1, heeds_term=True) as interrupted,
    ):
        result = Trainer(config).train(
            on_step=progress.step,
            on_note=progress.note,
            on_saved=progress.saved,
            stopped=interrupted.is_set,
        )
    if not rank:
        _say_result(result, config, as_json=as_json)
    if result.ended == "interrupted":
        return 130
    # The first process alone tells: a launcher ends all where one fails, and it may be exporting.
    return int(result.learnt_nothing and not rank)


def _say_result(result: Result, config: TrainConfig, *, as_json: bool) -> None:
    if "eval_loss" in result.summary:
        loss, perplexity = (result.summary[f"eval_{one}"] for one in ("loss", "perplexity"))
        say(f"held out: loss {_number(loss, '.4f')}, perplexity {_number(perplexity, '.3f')}")
    if result.ended != "steps":
        where = f"after step {result.summary['step']}" if result.steps else "before the first step"
        say(f"ended by {_ENDS[result.ended]} {where}")
    elif not result.steps:
        step = result.summary["step"]
        beyond = f": the checkpoint is of step {step}" if step > config.steps else ""
        say(f"nothing to do: all {config.steps} steps are taken{beyond}")
    for path in (result.exported, config.plot if result.steps else None):
        if path is not None:
            say(f"written to {path}")
    if as_json:
        show(json.dumps(result.summary))


class Progress(Protocol):
    """How a run is told while it goes on."""

    def step(self, line: Mapping[str, Any]) -> None:
        """A step is done."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def saved(self, folder: Path) -> None:
        """A checkpoint is on the disk."""


class Quiet:
    """Of several processes one speaks; what it says is said."""

    def step(self, line: Mapping[str, Any]) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def saved(self, folder: Path) -> None:
        """Say nothing."""


class JsonLines:
    """JSON lines on standard output, notes on the other."""

    def step(self, line: Mapping[str, Any]) -> None:
        """Print the line."""
        show(json.dumps(line))

    def note(self, text: str) -> None:
        """Say it."""
        say(f"note: {text}")

    def saved(self, folder: Path) -> None:
        """Say nothing: steps are counted in the lines."""


class Lines:
    """A line for people now and then, where nothing can be written over."""

    def __init__(self, steps: int) -> None:
        self._steps, self._told = steps, 0.0
        self._first: tuple[int, float] | None = None  # and when it was done

    def step(self, line: Mapping[str, Any]) -> None:
        """Say how it goes, at most once a second; the end, and what was asked for, always.

        The first step, in which loops are compiled, tells nothing of how long others take.
        """
        now, step = time.monotonic(), line["step"]
        is_first = self._first is None
        first, since = self._first = self._first or (step, now)
        is_due = now - self._told >= PAUSE_S or step == self._steps
        if is_due or "why_skipped" in line or "eval_loss" in line:
            self._told = now
            words = f"step {step}/{self._steps}: {_words(line, is_first=is_first)}"
            if not is_first:
                words += f", {(self._steps - step) * (now - since) / (step - first):.0f} s left"
            say(words)

    def note(self, text: str) -> None:
        """Say it."""
        say(f"note: {text}")

    def saved(self, folder: Path) -> None:
        """Say where it is."""
        say(f"checkpoint: {folder}")


class Bar:
    """A bar that is written over, on a terminal."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._bar: Any = None
        self._first = 0

    def step(self, line: Mapping[str, Any]) -> None:
        """Move the bar, which counts the steps that are left, to this step's place."""
        if "why_skipped" in line:
            self.note(f"step {line['step']}: {_words(line)}")
        if self._bar is None:
            self._first = line["step"]
            self._bar = click.progressbar(
                length=self._steps - line["step"] + 1,
                file=sys.stderr,
                width=24,
                item_show_func=self._beside,
            )
            self._bar.__enter__()
        self._bar.update(1, dict(line))

    def note(self, text: str) -> None:
        """Say it, on a line of its own."""
        self._say(f"note: {text}")

    def saved(self, folder: Path) -> None:
        """Say where it is, likewise."""
        self._say(f"checkpoint: {folder}")

    def _say(self, text: str) -> None:
        say(f"\r\033[K{text}" if self._bar is not None else text)

    def close(self) -> None:
        """Leave the bar as it is, and go below it."""
        if self._bar is not None:
            self._bar.render_finish()

    def _beside(self, line: Mapping[str, Any] | None) -> str | None:
        if line is None:
            return None
        words = _words(line, is_first=line["step"] == self._first)
        return f"{line['step']}/{self._steps} {words}"


@contextmanager
def _progress(config: TrainConfig, *, as_json: bool, is_first: bool) -> Iterator[Progress]:
    """How this run is told: a bar on a terminal, else lines."""
    if not is_first:
        yield Quiet()
    elif as_json:
        yield JsonLines()
    elif sys.stderr is not None and sys.stderr.isatty():
        bar = Bar(config.steps)
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield Lines(config.steps)


def _words(line: Mapping[str, Any], *, is_first: bool = False) -> str:
    """A step, for people; the speed of the first is that of compilers."""
    if "why_skipped" in line:
        return f"skipped, {line['why_skipped']}"
    held_out = f" (held out {_number(line['eval_loss'], '.4f')})" if "eval_loss" in line else ""
    speed = "" if is_first else f", {line['tokens_per_s']:.0f} tokens/s"
    return (
        f"loss {line['loss']:.4f}{held_out}, norm {line['grad_norm']:.3f}, lr {line['lr']:.2e}"
        + speed
    )


def _number(value: float | None, form: str) -> str:
    """A number of a line, which has none where it is not finite."""
    return "not finite" if value is None else format(value, form)
