"""orion bench: how fast this machine is, beside its memory, a baseline and peers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from orion_ane.artefacts.written import want_file
from orion_ane.bench import baseline as baselines
from orion_ane.bench import inference as inference_bench
from orion_ane.bench import kernels as kernels_bench
from orion_ane.bench import targets as targets_bench
from orion_ane.bench import training as training_bench
from orion_ane.bench.baseline import Baseline
from orion_ane.bench.harness import Row, load, machine
from orion_ane.bench.peers import Peer, chosen, find, started
from orion_ane.bench.shapes import SHAPES, random_checkpoint
from orion_ane.bench.verdicts import Target, Verdict, judge, markdown, unmeasured
from orion_ane.cli.common import codes_told, model_options, say, show, threads_option, want_target
from orion_ane.engine.threads import processors
from orion_ane.errors import ConfigError
from orion_ane.generate.model import Model, Stored
from orion_ane.generate.model import load as load_model
from orion_ane.runtime.portable import NumericsName
from orion_ane.runtime.registry import backend

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = "orion-bench.json"

EXAMPLE = """Examples:

  orion bench inference --model smollm2-135m --against transformers_fp32

  orion bench kernels --save-baseline before.json

  orion bench targets > table.md
"""


def bench_options(command: Command) -> Command:
    """Add the options of every benchmark."""
    options = [
        click.option(
            "--runs",
            type=click.IntRange(min=1),
            default=9,
            show_default=True,
            help="Rounds; in each, everything runs once.",
        ),
        click.option(
            "--against",
            multiple=True,
            metavar="PEER",
            help="Another engine, by its script: a name in bench/peers, or a file; repeatable.  "
            "Exit status 1 where it cannot be had.",
        ),
        click.option(
            "--baseline",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Rows to hold these against: exit status 1 where a rate of ours is over 15 % "
            "slower.  One of other settings is refused.",
        ),
        click.option(
            "--save-baseline",
            type=click.Path(dir_okay=False, path_type=Path),
            is_flag=False,
            flag_value=Path(FILE),
            metavar="[FILE]",
            help=f"Keep the rows, by default in {FILE}, in the place of older ones.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(epilog=EXAMPLE)
def bench() -> None:
    """Measure speed.

    Each row is a rate, the median of interleaved runs; ratios, which come first, are taken round by
    round.  Times are of the clock on the wall, so what else runs on the machine shows.
    """


@bench.command(epilog="Example:\n\n  orion bench kernels --save-baseline before.json")
@bench_options
@threads_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def kernels(
    *,
    runs: int,
    against: tuple[str, ...],
    baseline: Path | None,
    save_baseline: Path | None,
    threads: int | None,
    as_json: bool,
) -> int:
    """Measure products, the emulator's exact arithmetic and rounding."""
    settings: Settings = {"benchmark": "kernels", "threads": threads or processors()}
    scripts, old = [find(name) for name in against], _kept(baseline, save_baseline)
    _want_same(old, settings)
    work = {**kernels_bench.PEERS_WORK, "threads": threads or processors()}
    with started(scripts, work) as (peers, notes):
        _introduce(peers, notes)
        rows = kernels_bench.measure(peers, runs=runs, threads=threads).rows()
    kept = Kept(settings, old, save_baseline, against)
    return _tell(rows, peers, notes, kept, as_json=as_json)


@bench.command(
    epilog="Example:\n\n  orion bench inference --model smollm2-135m --against transformers_fp32"
)
@model_options
@click.option(
    "--numerics",
    type=click.Choice(["exact", "fp16", "fp32", "bf16"]),
    help="How the device computes.  [default: exact on the emulator, fp32 on cpu]",
)
@click.option(
    "--target", metavar="NAME|FILE",
    help="The device that the emulator is: paper, strict, m1 to m5, or a target file.  "
    "[default: strict]",
)  # fmt: skip
@click.option(
    "--prompt-tokens", type=click.IntRange(min=1), default=256, show_default=True,
    help="Tokens that are read at once.",
)  # fmt: skip
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=32, show_default=True,
    help="Tokens that follow one by one.",
)  # fmt: skip
@bench_options
def inference(
    *,
    model: str | None,
    device: str,
    target: str | None,
    weights: Stored,
    numerics: NumericsName | None,
    threads: int | None,
    prompt_tokens: int,
    max_tokens: int,
    runs: int,
    against: tuple[str, ...],
    baseline: Path | None,
    save_baseline: Path | None,
    as_json: bool,
) -> int:
    """Measure the reading of a prompt, and decoding after it.

    The model may also be llama-110m or gpt2-124m: such a shape with random weights.
    """
    if model is None:
        raise ConfigError("--model", "not given", want=f"a model, {' or '.join(SHAPES)}")
    scripts, old = [find(name) for name in against], _kept(baseline, save_baseline)
    want_target(target, device)
    options: dict[str, Any] = {"numerics": numerics, "target": target, "threads": threads}
    with codes_told(weights), _loaded(model, device, weights, options) as found:
        sizes = {"prompt": prompt_tokens, "new": max_tokens}
        inference_bench.check_room(found.config, **sizes)
        many = threads or processors()
        work = inference_bench.peers_work(found.config, **sizes, origin=found.origin, threads=many)
        where = found.device + ("" if found.target is None else f" ({found.target})")
        say(f"model: {model} on {where}, numerics {found.numerics}, weights {weights}")
        settings: Settings = {"benchmark": "inference", "model": found.origin}
        settings |= {} if found.target is None else {"target": found.target}
        settings |= {"device": found.device, "numerics": found.numerics, "weights": weights}
        settings |= {"prompt_tokens": prompt_tokens, "max_tokens": max_tokens, "threads": many}
        _want_same(old, settings)
        with started(scripts, work) as (peers, notes):
            _introduce(peers, notes)
            samples = inference_bench.measure(found, peers, **sizes, runs=runs, threads=threads)
    kept = Kept(settings, old, save_baseline, against, model)
    return _tell(samples.rows(), peers, notes, kept, as_json=as_json)


@bench.command(epilog="Example:\n\n  orion bench training --runs 3 --against torch_eager_fp32")
@bench_options
@threads_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def training(
    *,
    runs: int,
    against: tuple[str, ...],
    baseline: Path | None,
    save_baseline: Path | None,
    threads: int | None,
    as_json: bool,
) -> int:
    """Measure a step of 4 microbatches of 256 tokens, its parts and its memory.

    The model has the shape llama-110m, new and in fp32.  Peers compute one microbatch;
    without --against they are the usual ones of bench/peers in the source's folder.
    """
    old, many = _kept(baseline, save_baseline), threads or processors()
    settings: Settings = {"benchmark": "training", "threads": many}
    _want_same(old, settings)
    rows, introduced, notes = _training(against, runs, many)
    for note in notes:
        say(f"note: {note}")
    kept = Kept(settings, old, save_baseline, against)
    return _tell_all(rows, introduced, notes, kept, as_json=as_json)


@bench.command(epilog="Example:\n\n  orion bench targets > table.md")
@bench_options
@threads_option()
@click.option(
    "--only",
    type=click.Choice([*SHAPES, "training", "kernels"]),
    multiple=True,
    help="A part of it; repeatable.  [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def targets(
    *,
    runs: int,
    against: tuple[str, ...],
    baseline: Path | None,
    save_baseline: Path | None,
    threads: int | None,
    only: tuple[str, ...],
    as_json: bool,
) -> int:
    """Measure every speed that is asked for, beside all peers, as a table in Markdown.

    A peer that cannot be had, or ends, is named below the table with its reason; --against takes
    those named alone.  Their scripts are in bench/peers of the source's folder: run it there.
    """
    old, before, many = _kept(baseline, save_baseline), load(), threads or processors()
    settings: Settings = {"benchmark": "targets", "threads": many}
    _want_same(old, settings)
    rows: list[Row] = []
    verdicts: list[Verdict] = []
    introduced: dict[str, str] = {}
    notes: list[str] = []
    for part in only or (*SHAPES, "training", "kernels"):
        say(f"measuring {part}")
        if part in SHAPES:
            (scripts, absent), where = chosen(against, targets_bench.PEERS), part
            notes += [note for note in absent if note not in notes]
            asked: tuple[Target, ...] = targets_bench.PER_SHAPE
            found = targets_bench.measure(part, scripts, runs=runs, threads=many)
        else:
            trains, where = part == "training", ""
            asked = targets_bench.OF_TRAINING if trains else targets_bench.of_kernels(many)
            found = _training(against, runs, many) if trains else _kernels(against, runs, many)
        mine = judge(asked, found[0], where)
        rows, verdicts = rows + found[0], verdicts + mine
        introduced |= found[1]
        notes += [note for note in found[2] if note not in notes]
        notes += unmeasured(asked, mine, where)
    about = {"machine": machine(), "load before and after": f"{before}, {load()}"}
    about |= {"threads": str(many)} | {f"peer {name}": what for name, what in introduced.items()}
    if not as_json:
        show(markdown(verdicts, rows, notes, about))
    more = {"targets": [verdict.document() for verdict in verdicts], "load_before": before}
    kept = Kept(settings, old, save_baseline, against)
    return _tell_all(rows, introduced, notes, kept, as_json=as_json, more=more)


Settings: TypeAlias = dict[str, str | int]
"""What a measurement was asked with, by names; those of other settings say nothing of it."""


@dataclass(frozen=True)
class Kept:
    """What rows are held against, and where they are kept.

    Attributes:
        settings: what they are measured with.
        old: the baseline.
        save: the file of a new one.
        against: the peers that were asked for.
        model: what the user calls the model, where there is one.
    """

    settings: Settings
    old: Baseline | None
    save: Path | None
    against: tuple[str, ...]
    model: str | None = None


Found: TypeAlias = tuple[list[Row], dict[str, str], list[str]]
"""Rows, the peers that ran with what they are, and what could not be had."""


def _training(against: tuple[str, ...], runs: int, threads: int) -> Found:
    scripts, absent = chosen(against, targets_bench.TRAINERS)
    work = training_bench.work_of(training_bench.SHAPE, training_bench.SEQ, threads)
    with started(scripts, work) as (peers, notes):
        rows = training_bench.measure(work, peers, runs=runs).rows()
        return rows, {peer.name: peer.what for peer in peers}, [*absent, *notes]


def _kernels(against: tuple[str, ...], runs: int, threads: int) -> Found:
    scripts, absent = chosen(against, targets_bench.OF_KERNELS)
    work = {**kernels_bench.PEERS_WORK, "threads": threads}
    with started(scripts, work) as (peers, notes):
        rows = kernels_bench.measure(peers, runs=runs, threads=threads).rows()
        return rows, {peer.name: peer.what for peer in peers}, [*absent, *notes]


def _loaded(model: str, device: str, weights: Stored, options: Mapping[str, Any]) -> Model:
    """A real model, or a shape with random weights."""
    if model not in SHAPES:
        return load_model(model, device=device, weights=weights, **options)
    asked = {name: value for name, value in options.items() if value is not None}
    checkpoint, threads = random_checkpoint(SHAPES[model], model), options["threads"]
    return Model(checkpoint, backend=backend(device, **asked), weights=weights, threads=threads)


def _introduce(peers: list[Peer], notes: list[str]) -> None:
    for peer in peers:
        say(f"peer {peer.name}: {peer.what}")
    for note in notes:
        say(f"note: {note}")


def _want_same(old: Baseline | None, settings: Settings) -> None:
    """Refuse a baseline of other settings, and say where it does not tell its own."""
    if old is not None and old.settings is None:
        say(f"note: {old.path} does not say what it was measured with: compare like with like")
    if old is not None:
        old.want_same(settings)


def _kept(baseline: Path | None, save: Path | None) -> Baseline | None:
    """The baseline; what cannot be read, or written at the end, is refused before it runs.

    Raises:
        ConfigError: the baseline is another machine's, there is no folder to save in, or the rows
            would go in the place of what is none of them.
        DataError: it is no baseline.
    """
    if save is not None:
        want_file("--save-baseline", save, baselines.is_baseline, "baseline")
    return None if baseline is None else baselines.read(baseline)


def _tell(
    rows: list[Row],
    peers: list[Peer],
    notes: list[str],
    kept: Kept,
    *,
    as_json: bool,
) -> int:
    """Print the rows, and what `_tell_all` does; the exit code."""
    introduced = {peer.name: peer.what for peer in peers}
    return _tell_all(rows, introduced, notes, kept, as_json=as_json)


def _tell_all(
    rows: list[Row],
    peers: dict[str, str],
    notes: list[str],
    kept: Kept,
    *,
    as_json: bool,
    more: dict[str, Any] | None = None,
) -> int:
    """Print, unless `more` was printed, and keep the rows; hold them against older ones."""
    old = kept.old
    if kept.save is not None:
        baselines.save(kept.save, rows, kept.settings)
    if not as_json and more is None:
        _print(rows)
    found = None if old is None else baselines.compare(old.rows, rows, peers)
    if as_json:
        document: dict[str, Any] = dict(kept.settings)
        document |= {} if kept.model is None else {"model": kept.model}
        document |= {"rows": [row.document() for row in rows], "load": load()}
        document["peers"] = peers
        document["not_to_be_had"] = notes
        document["slower"] = [] if found is None else [str(row) for row in found.slower]
        document |= more or {}
        show(json.dumps(document, indent=2, ensure_ascii=False))
    absent = [name for name in kept.against if find(name).stem not in peers]
    for name in absent:
        say(f"asked for and not to be had: {name}")
    if found is None:
        return 1 if absent else 0
    for name in found.missing:
        say(f"note: the baseline has {name}, which was not measured now")
    for slower in found.slower:
        say(f"slower: {slower}")
    return 1 if found.slower or absent else 0


def _print(rows: list[Row]) -> None:
    width = max(len(row.name) for row in rows)
    show(f"{rows[0].machine}; {rows[0].runs} runs; load {load()}")
    show(f"{'':{width}} {'median':>9} {'p10':>9} {'p90':>9}")
    for row in rows:
        figures = " ".join(f"{x:>9.4g}" for x in (row.median, row.p10, row.p90))
        show(f"{row.name:{width}} {figures} {row.unit}")
