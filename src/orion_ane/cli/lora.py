"""orion lora: an adapter trained, put into a model's weights, and held to a text."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

import click

from orion_ane.artefacts.written import want_apart
from orion_ane.cli.common import (
    arithmetic_options,
    codes_told,
    model_options,
    say,
    show,
    told_auto,
    want_target,
)
from orion_ane.cli.train import run as run_training
from orion_ane.cli.train import train as train_command
from orion_ane.errors import BackendError, CheckpointError, ConfigError
from orion_ane.generate.fused import ALIKE, logit_error
from orion_ane.generate.model import load
from orion_ane.generate.scoring import Score, score
from orion_ane.lora.adapter import merged, scaled, without_models_head
from orion_ane.lora.config import ALL_LINEAR, AdapterConfig
from orion_ane.lora.files import another_base, load_adapter
from orion_ane.lora.inject import RANKS
from orion_ane.models.build import document_tokenizer_of
from orion_ane.models.registry import find
from orion_ane.models.weights import load_checkpoint
from orion_ane.models.weights.export import export, want_exportable
from orion_ane.train.config import TrainConfig
from orion_ane.train.corpus import read_tokens
from orion_ane.train.data import Windows

FOLDER = click.Path(path_type=Path)
TRAIN = (
    "orion lora train --model orion-stories --data tales.txt --steps 300 --lr 1e-2 --export grimm/"
)
EVAL = "orion lora eval --model orion-stories --adapter grimm/ --data tales.txt"
FUSE = "orion lora fuse --model orion-stories --adapter grimm/ --out fused/"
EXAMPLE = "\n\n".join(["Examples:", *(f"  {one}" for one in (TRAIN, EVAL, FUSE))])
OF_TRAIN, OF_EVAL, OF_FUSE = (f"Example:\n\n  {one}\n" for one in (TRAIN, EVAL, FUSE))


@click.group(epilog=EXAMPLE, short_help="Train, evaluate or fuse LoRA adapters.")
def lora() -> None:
    """LoRA adapters, as PEFT keeps them: train or evaluate one, or put it into its model's weights.

    `orion generate --adapter FOLDER` wears one.
    """


@lora.command(short_help="Write the model with an adapter in its weights.", epilog=OF_FUSE)
@click.option("--model", required=True, metavar="NAME|FOLDER|FILE", help="What it was made for.")
@click.option("--adapter", required=True, type=FOLDER, help="PEFT's folder, or mlx-lm's.")
@click.option("--out", required=True, type=FOLDER, help="The folder to make.")
@click.option("--weight", type=float, default=1.0, show_default=True, help="Of the adapter.")
@click.option("--verify", is_flag=True, help="Compare its logits with those of both together.")
@click.option("--download", is_flag=True, help="Fetch a model that is not on this machine.")
@click.option("--replace", is_flag=True, help="Put the folder in an older one's place.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show an error's trace.")
def fuse(
    *,
    model: str,
    adapter: Path,
    out: Path,
    weight: float,
    verify: bool,
    download: bool,
    replace: bool,
    as_json: bool,
) -> int:
    """Write the model with an adapter in its weights, as a Hugging Face folder in fp32.

    Its logits are those of the model that wears the adapter.  A head that was tied to the token
    vectors becomes a matrix of its own where the adapter changes one of the two.
    """
    if out.suffix == ".bin":
        raise ConfigError("--out", "not a folder", got=str(out))
    if not isfinite(weight):
        raise ConfigError("--weight", "no such weight", got=weight, want="a finite number")
    checkpoint = load_checkpoint(find(model, download=download))
    found = without_models_head(load_adapter(adapter, checkpoint.config), checkpoint.tensors)
    want_apart("--out", out, (checkpoint.origin, adapter))
    want_exportable(out, checkpoint.config, replace=replace)
    if weight != 1 and found.tables:
        raise ConfigError("--weight", "of tables that come whole", got=weight, want=1)
    worn = scaled(found, weight)
    config, tensors = merged(worn, checkpoint.tensors)
    document: dict[str, Any] = {"model": model, "adapter": found.name, "out": str(out)}
    document |= {"rank": found.rank, "matrices": len(found.matrices)}

    def verified(made: Path) -> None:
        document["logit_error"] = error = logit_error(checkpoint, worn, made)
        if not error <= ALIKE:
            what, got = "is not model and adapter together", f"{error:.1e} of the largest logit"
            raise CheckpointError(str(out), what, got=got, hint="nothing was written")
        say(f"verified: logits differ by {error:.1e} of the largest at most")

    check = {"check": verified} if verify else {}
    written = export(out, config, tensors, checkpoint.tokenizer, replace=replace, **check)
    document["notes"] = [*found.notes, *written]
    for note in document["notes"]:
        say(f"note: {note}")
    say(f"written to {out}")
    if as_json:
        show(json.dumps(document))
    return 0


@lora.command(
    "eval", short_help="A text's perplexity with an adapter and without it.", epilog=OF_EVAL
)
@model_options
@arithmetic_options
@click.option("--adapter", required=True, type=FOLDER, help="PEFT's folder, or mlx-lm's.")
@click.option(
    "--data",
    multiple=True,
    required=True,
    type=FOLDER,
    help="Text, .jsonl or a token file; repeatable.",
)
@click.option("--seq", type=int, help="Tokens of a window.  [default: 256, or the context]")
@click.option("--download", is_flag=True, help="Fetch a model that is not on this machine.")
def evaluate(
    *,
    model: str | None,
    device: str,
    target: str | None,
    adapter: Path,
    data: tuple[Path, ...],
    seq: int | None,
    download: bool,
    as_json: bool,
    **chosen: Any,
) -> int:
    """A text's perplexity with an adapter and without it, over all of its tokens."""
    if model is None:
        raise ConfigError("--model", "not given", hint="name what the adapter was made for")
    want_target(target, device)
    tokenizer = document_tokenizer_of(load_checkpoint(find(model, download=download)))
    with (
        codes_told(chosen["weights"]),
        load(model, device=device, target=target, **chosen) as loaded,
    ):
        config = loaded.config
        length = seq if seq is not None else min(256, config.context)
        if not 1 <= length <= config.context:
            want = f"1 to {config.context}"
            raise ConfigError("--seq", "does not fit the model", got=length, want=want)
        windows = Windows(read_tokens(data, tokenizer, config.vocab), length)
        if device == "auto":
            say(f"device: {told_auto(loaded, target)}")
        name = loaded.load_adapter(adapter)
        for note in (*another_base(adapter, model, loaded.origin), *loaded.notes):
            say(f"note: {note}")
        rows = [(b.ids[0], b.targets[0]) for b in windows.every(1)]
        without = score(loaded, rows)
        _want_finite(model, without, loaded.device)
        worn = score(loaded, rows, adapter=name)
    if not as_json:
        show(f"without: {_told(without)}")
        show(f"with:    {_told(worn)}")
    else:
        document: dict[str, Any] = {"model": model, "adapter": name, "device": loaded.device}
        document |= {"target": loaded.target, "numerics": loaded.numerics, "tokens": worn.tokens}
        show(json.dumps({**document, **without.told("base"), **worn.told("adapter")}))
    return 0


def _want_finite(model: str, without: Score, device: str) -> None:
    """Refuse a model that has no loss of its own, before an adapter is blamed for it.

    Raises:
        BackendError: it has none.
    """
    if isfinite(without.loss):
        return
    hint = "its own weights give that, as a run at too high a rate leaves them"
    if device != "cpu":
        hint = "take --device cpu, which computes in fp32; where it is so too, " + hint
    what = "its loss without the adapter is not finite"
    raise BackendError(model, what, got=without.loss, hint=hint)


def _told(one: Score) -> str:
    return f"loss {one.loss:.4f}, perplexity {one.perplexity:.3f}, over {one.tokens} tokens"


NOT_HERE = ("from_scratch", "updates", "weight_decay", "export")
"""Options of `orion train` that an adapter has not, or has otherwise."""
OWN = [
    click.Option(["--rank"], type=click.IntRange(1, RANKS[-1]), default=8, show_default=True,
                 help="Rows of A, columns of B."),
    click.Option(["--alpha"], type=float, show_default="twice the rank",
                 help="What is added is multiplied by alpha / rank."),
    click.Option(["--targets"], default=ALL_LINEAR, show_default=True,
                 help="Ends of names, with commas, as q_proj,v_proj; or all-linear."),
    click.Option(["--rslora"], is_flag=True, help="Multiply by alpha / √rank instead."),
    click.Option(["--dropout"], type=click.FloatRange(0, 1, max_open=True), default=0.0,
                 show_default=True, help="Of what enters A, in training."),
    click.Option(["--weight-decay"], type=float, default=0.0, show_default=True,
                 help="Of A and B."),
    click.Option(["--export"], type=FOLDER, help="Write the adapter: a folder, as PEFT's."),
]  # fmt: skip


def train(
    *,
    rank: int,
    alpha: float | None,
    targets: str,
    rslora: bool,
    dropout: float,
    as_json: bool,
    **asked: Any,
) -> int:
    """Train a new adapter; the model itself stays as it is, and its programs never change.

    A and B are inputs of the programs: nothing is compiled or loaded after the start, on any
    device.  `orion train --help` says more of what is not the adapter's.
    """
    names = tuple(name.strip() for name in targets.split(",") if name.strip())
    config = AdapterConfig(
        rank=rank,
        alpha=2.0 * rank if alpha is None else alpha,
        targets=ALL_LINEAR if targets == ALL_LINEAR else names,
        dropout=dropout,
        rank_stabilised=rslora,
        base=str(asked.get("model") or ""),
    )
    return run_training(TrainConfig(**asked, adapter=config), as_json=as_json)


lora.add_command(
    click.Command(
        "train",
        callback=train,
        params=[*OWN, *(p for p in train_command.params if p.name not in NOT_HERE)],
        help=train.__doc__,
        short_help="Train a new adapter; the model stays as it is.",
        epilog=OF_TRAIN,
    )
)
