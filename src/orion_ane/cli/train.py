"""orion train: a model that learns from text, a line a step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from orion_ane.cli.common import device_options, graceful_interrupt, say, show
from orion_ane.cli.config import config_option
from orion_ane.errors import ConfigError
from orion_ane.train.loop import line_of, summary_of
from orion_ane.train.setup import Prepared, Request, prepare

EXAMPLE = """Examples:

  orion train --model stories260k --data tales.txt --steps 300 --seq 128 --checkpoint-dir run/

  orion train --from-scratch config.json --model gpt2 --data tales.txt --steps 1000 --export new/
"""
PAUSE_S = 1.0  # between lines for people
FILE = click.Path(path_type=Path)


@click.command(epilog=EXAMPLE)
@device_options
@config_option
@click.option(
    "--target",
    metavar="NAME|FILE",
    help="The device that the emulator is: paper, strict, m1 to m5.  [default: strict]",
)
@click.option(
    "--data",
    multiple=True,
    required=True,
    type=FILE,
    help="Text, .jsonl, or a token file (.bin, .u16, .u32); repeatable.",
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
@click.option("--eval-data", multiple=True, type=FILE, help="Held-out text, read at the end.")
@click.option("--log-file", type=FILE, help="Add each step's JSON line to this file.")
@click.option("--max-minutes", type=float, help="Begin no step after so long.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the data's order and of a new model."
)
def train(
    *,
    model: str | None,
    device: str,
    target: str | None,
    as_json: bool,
    log_file: Path | None,
    **asked: Any,
) -> int:
    """Train a model further on text, or a new one.

    With --json each step is a line on standard output, the last one of type summary.  Ctrl-C ends
    with the step in hand, and saves.
    """
    if target is not None and device != "emulator":
        raise ConfigError("--target", f"not with device {device}", want="--device emulator")
    asked |= {"data": tuple(asked["data"]), "eval_data": tuple(asked["eval_data"])}
    chosen = {} if target is None else {"target": target}
    with _log(log_file) as log:
        prepared = prepare(Request(model=model, **asked), device=device, **chosen)
        for note in prepared.notes:
            say(f"note: {note}")
        try:
            code = _follow(prepared, log, as_json=as_json)
            if (path := asked["export"]) is not None:
                for note in prepared.export(path):
                    say(f"note: {note}")
                say(f"written to {path}")
            return code
        finally:
            if (unsaved := prepared.loop.unsaved) is not None:
                say(f"note: {unsaved}")
            prepared.loop.trainer.close()


def _follow(prepared: Prepared, log: Callable[[str], None], *, as_json: bool) -> int:
    """Run every step and say what each was."""
    loop = prepared.loop
    trainer = loop.trainer
    started, seen = time.monotonic(), trainer.state.tokens_seen
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    told = 0.0
    with graceful_interrupt() as interrupted:
        for report in loop.run(stopped=interrupted.is_set):
            last = line_of(report, trainer)
            first = first or last
            text = json.dumps(last)
            log(text)
            if as_json:
                show(text)
            now = time.monotonic()
            tokens_per_s = (trainer.state.tokens_seen - seen) / max(now - started, 1e-9)
            is_last = report.step == trainer.recipe.schedule.steps
            if not as_json and (now - told >= PAUSE_S or is_last or report.skipped):
                told = now
                say(_progress(last, trainer.recipe.schedule.steps, tokens_per_s))
    summary = summary_of(loop, first, last)
    if (evaluation := prepared.evaluation()) is not None:
        summary |= {"eval_loss": evaluation.loss, "eval_perplexity": evaluation.perplexity}
        say(f"held out: loss {evaluation.loss:.4f}, perplexity {evaluation.perplexity:.3f}")
    log(json.dumps(summary))
    if as_json:
        show(json.dumps(summary))
    return 130 if loop.end == "interrupted" else 0


def _progress(line: dict[str, Any], steps: int, tokens_per_s: float) -> str:
    """A step, for people."""
    left = (steps - line["step"]) * line["step_ms"] / 1000
    head = f"step {line['step']}/{steps}"
    if "why_skipped" in line:
        return f"{head}: skipped, {line['why_skipped']}"
    return (
        f"{head}: loss {line['loss']:.4f}, norm {line['grad_norm']:.3f}, lr {line['lr']:.2e},"
        f" {tokens_per_s:.0f} tokens/s, {left:.0f} s left"
    )


@contextmanager
def _log(file: Path | None) -> Iterator[Callable[[str], None]]:
    """What adds a line to a file, at once; or does nothing."""
    if file is None:
        yield lambda _: None
        return
    with file.open("a", encoding="utf-8") as opened:

        def add(line: str) -> None:
            opened.write(f"{line}\n")
            opened.flush()

        yield add
