"""orion generate: a prompt in, its continuation out."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

import click

from orion_ane.cli.common import (
    arithmetic_options,
    as_unicode,
    codes_told,
    graceful_interrupt,
    model_options,
    read_stdin,
    say,
    show,
    told_auto,
    want_target,
)
from orion_ane.errors import ConfigError
from orion_ane.generate.model import Stored, load
from orion_ane.generate.options import Options
from orion_ane.generate.result import Generation, Piece
from orion_ane.generate.watch import Seen
from orion_ane.lora.files import another_base, base_of
from orion_ane.models.registry import DEFAULT, available
from orion_ane.runtime.backend import described
from orion_ane.runtime.portable import NumericsName

ENDS = {
    "stop": "the model or a stop text",
    "length": "length",
    "interrupted": "interruption",
}
EXAMPLE = """Examples:

  orion generate --prompt "Once upon a time"

  orion generate --model smollm2-135m --prompt "The capital of France is"

  orion generate --model m.gguf --device emulator --target m1 --prompt Once
"""


@click.command(epilog=EXAMPLE)
@model_options
@arithmetic_options
@click.option(
    "--prompt",
    metavar="TEXT",
    help="What to continue (empty: from the model's first token); without it, standard "
    "input, less one newline at its end; nothing there is an error.",
)
@click.option("--max-tokens", type=int, default=128, show_default=True, help="The most new tokens.")
@click.option(
    "--temperature", type=float, default=0.0, show_default=True, help="0 takes the likeliest."
)
@click.option("--top-k", type=int, help="Draw from the K likeliest tokens; 0 is off, the default.")
@click.option(
    "--top-p",
    type=float,
    default=1.0,
    show_default=True,
    help="Draw from the likeliest share P; 0 takes the likeliest.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random draws.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; repeatable.")
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Print as it comes, the default; with --json, one line a piece, if asked for.",
)
@click.option("--verify", is_flag=True, help="Compare every logit with fp32 on the way.")
@click.option(
    "--adapter",
    metavar="FOLDER",
    help="Wear this LoRA adapter, a folder of PEFT's or of mlx-lm's.",
)
@click.option("--download", is_flag=True, help="Fetch a model that is not on this machine.")
def generate(
    *,
    model: str | None,
    device: str,
    weights: Stored,
    target: str | None,
    numerics: NumericsName | None,
    threads: int | None,
    as_json: bool,
    prompt: str | None,
    stream: bool | None,
    adapter: str | None,
    download: bool,
    **options: Any,
) -> int:
    """Continue a prompt.

    The continuation goes to standard output, everything else to standard error.  Without --model
    it is the small storyteller that the package carries.
    """
    want_target(target, device)
    request = Options(**options)  # before weights are read in vain
    text = (
        read_stdin("prompt").removesuffix("\n")
        if prompt is None
        else as_unicode(os.fsencode(prompt))
    )
    if request.temperature == 0 and (request.top_k or request.top_p < 1):
        say("note: --top-k and --top-p do nothing at temperature 0, which takes the likeliest")
    if model is None:
        model = DEFAULT
        say(f"model: {_carried()}")
        if adapter is not None:
            _want_made_for(Path(adapter), DEFAULT)
    shown = stream if stream is not None else not as_json
    chosen: dict[str, Any] = {"device": device, "weights": weights, "target": target}
    chosen |= {"numerics": numerics, "threads": threads, "download": download}
    with codes_told(weights), load(model, **chosen) as loaded:
        if adapter is not None:
            loaded.set_adapter(loaded.load_adapter(adapter))
            for note in another_base(Path(adapter), model, loaded.origin):
                say(f"note: {note}")
        with graceful_interrupt() as interrupted:
            pieces = loaded.stream(text, **options, cancelled=interrupted.is_set)
            if device == "auto":
                say(f"device: {told_auto(loaded, target)}")
            for note in loaded.notes:
                say(f"note: {note}")
            result = _follow(pieces, model, as_json=as_json, shown=shown)
        if len(result.ids) < options["max_tokens"] and result.finish_reason == "length":
            say(f"note: the context is full after {len(result.ids)} new tokens")
        if not result.ids and result.finish_reason == "stop" and loaded.tokenizer.template:
            say("note: this model was tuned for chats, and a prompt alone is none: from Python,")
            say(
                "      model.tokenizer.chat([...]) makes the ids of one, which model.generate takes"
            )
        return 130 if result.finish_reason == "interrupted" else 0


def _follow(pieces: Iterable[Piece], model: str, *, as_json: bool, shown: bool) -> Generation:
    """Print the pieces as they come, or the whole at the end, and give the result."""
    for piece in pieces:
        if piece.result is not None:
            result = piece.result
        elif shown:
            line = json.dumps({"text": piece.text, "id": piece.id}, ensure_ascii=False)
            show(line if as_json else piece.text, end="\n" if as_json else "")
    if as_json:
        show(json.dumps(summary(result, model), ensure_ascii=False))
    else:
        show("" if shown else result.text)
        say(_figures(result))
    if result.verification is not None and result.verification.warning is not None:
        say(f"note: {result.verification.warning}")
    return result


def summary(result: Generation, model: str) -> dict[str, Any]:
    """A generation as `--json` prints it, with what the user calls the model."""
    timings = result.timings
    document: dict[str, Any] = {
        "text": result.text,
        "prompt_ids": result.prompt_ids,
        "ids": result.ids,
        "finish_reason": result.finish_reason,
        "model": model,
        "device": result.device,
        "target": result.target,
        "numerics": result.numerics,
        "seed": result.seed,
        "adapter": result.adapter,
        "compile_ms": result.compile_s * 1e3,
        "prefill_ms": timings.prefill_s * 1e3,
        "ttft_ms": timings.ttft_ms,
        "prefill_tokens_per_s": timings.prefill_tokens_per_s,
        "decode_tokens_per_s": timings.decode_tokens_per_s,
        "compiles": result.compiles,
        "programs": result.programs,
        "evaluations_per_token": result.evaluations_per_token,
        "weight_bytes_per_token": result.weight_bytes_per_token,
    }
    if result.verification is not None:
        document["max_logit_error"] = result.verification.max_logit_error
        document["argmax_agreement"] = result.verification.argmax_agreement
        document["verify_ms"] = result.verification.seconds * 1e3
        document["ranges"] = {
            "first_bad": _seen(result.verification.first_bad),
            "nearest": _seen(result.verification.nearest),
        }
    return document


def _seen(seen: Seen | None) -> dict[str, Any] | None:
    """A tensor as `--json` prints it."""
    if seen is None:
        return None
    found = seen.range
    return {
        "program": seen.program,
        "name": found.name,
        "op": found.op,
        "type": str(found.type),
        "largest": found.largest,
        "room": found.room if math.isfinite(found.room) else None,
        "not_finite": found.not_finite,
        "saturated": found.saturated,
        "lost_share": found.lost_share,
    }


def _figures(result: Generation) -> str:
    timings = result.timings
    where = described(result.device, result.target, result.numerics)
    figures = (
        f"{len(result.ids)} tokens on {where}, ended by {ENDS[result.finish_reason]}: "
        f"compile {result.compile_s * 1e3:.0f} ms, prompt {timings.ttft_ms:.0f} ms"
    )
    if timings.decode_tokens:
        figures += f", then {timings.decode_tokens_per_s:.1f} tokens/s"
    if result.verification is not None:
        check = result.verification
        figures += (
            f"; against fp32: logits within {check.max_logit_error:.2g}, "
            f"argmax equal in {check.argmax_agreement:.1%}, "
            f"verified in {check.seconds * 1e3:.0f} ms"
        )
    return figures


def _want_made_for(adapter: Path, model: str) -> None:
    """Refuse an adapter that was made for a model which nobody named."""
    base = base_of(adapter)
    if PurePath(base).name not in ("", model):
        raise ConfigError(
            "--adapter",
            f"not made for {model}",
            got=f"made for {base}",
            hint=f"give --model {base}",
        )


def _carried() -> str:
    """What runs where no model is named, and what else there is."""
    others = [name for name, _ in available() if name != DEFAULT]
    found = f"; also here: {', '.join(others)}" if others else ""
    return f"{DEFAULT}, a small one that comes with the package{found}"
