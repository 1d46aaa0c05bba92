"""From what a user asks for to a run that can start, or go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orion_ane.errors import ConfigError
from orion_ane.host.adamw import AdamW
from orion_ane.host.schedule import Schedule, Shape
from orion_ane.models.build import decoder_of, tokenizer_of
from orion_ane.models.registry import find
from orion_ane.models.scratch import from_scratch
from orion_ane.models.weights import Checkpoint, TokenizerSource, load_checkpoint
from orion_ane.models.weights.export import export, want_exportable
from orion_ane.runtime.backend import Backend
from orion_ane.runtime.registry import backend as make_backend
from orion_ane.text import Tokenizer
from orion_ane.train.checkpoint import Checkpoints, Saved
from orion_ane.train.corpus import read_tokens
from orion_ane.train.data import Batches, Windows
from orion_ane.train.evaluation import Evaluation, evaluate
from orion_ane.train.loop import Loop, Plan, settings_of
from orion_ane.train.state import State
from orion_ane.train.step import Recipe, Trainer
from orion_ane.train.updates import UpdatesName
from orion_ane.types import Array

LONGEST = 256
"""Tokens of a sequence where nothing is asked for, if the model's context allows."""
HALF_SCALE = 16.0
"""Of the loss on a device in fp16: from 1 to 256 gradients of stories260K are as good as fp16 can
have them, from 1,024 they overflow."""


@dataclass(frozen=True)
class Request:
    """What `orion train` is asked for; its help says what each means."""

    model: str | None
    data: tuple[Path, ...]
    steps: int
    from_scratch: str | None = None
    batch: int = 8
    seq: int | None = None
    grad_accum: int = 1
    lr: float = 5e-4
    schedule: Shape = "cosine"
    warmup: int = 0
    weight_decay: float = 0.1
    clip: float = 1.0
    updates: UpdatesName = "auto"
    checkpoint_dir: Path | None = None
    save_every: int = 0
    resume: bool = False
    export: Path | None = None
    eval_data: tuple[Path, ...] = ()
    max_minutes: float | None = None
    seed: int = 0
    threads: int | None = None


@dataclass(eq=False)
class Prepared:
    """A run that can start.

    Attributes:
        loop: the steps that are left.
        held_out: what its losses are measured on besides; None where nothing was asked for.
        notes: for people: what was passed over, and where it goes on.
        tokenizer: where the model's comes from.
    """

    loop: Loop
    held_out: Windows | None
    notes: list[str]
    tokenizer: TokenizerSource | None = None

    def export(self, path: Path) -> list[str]:
        """Write the model as it is now; see `models.weights.export`."""
        trainer = self.loop.trainer
        return export(path, trainer.decoder.config, trainer.state.masters, self.tokenizer)

    def evaluation(self) -> Evaluation | None:
        """The loss over the held-out text, as the model is now."""
        if self.held_out is None:
            return None
        trainer = self.loop.trainer
        return evaluate(trainer.network, self.held_out.every(1), trainer.state.masters)


def prepare(request: Request, *, device: str = "auto", **options: Any) -> Prepared:
    """The run that is asked for; what cannot be is refused before anything is compiled.

    Args:
        request: what is asked for.
        device: a backend by name.
        options: what the backend takes, as `target`.

    Raises:
        ConfigError: no such model or setting, or a checkpoint of another run.
        CheckpointError: weights or checkpoints that cannot be read.
        DataError: data that cannot be used.
        BackendError: no such device, or one that would keep old weights.
    """
    made = make_backend(device, threads=request.threads, **options)
    plan = Plan(request.grad_accum, request.save_every, request.max_minutes)
    recipe = _recipe(request)
    checkpoints, saved, notes = _checkpoints(request)
    source = _source(request)
    config, tokenizer = source.config, _tokenizer(source)
    if request.export is not None:
        want_exportable(request.export, config)
    seq = request.seq if request.seq is not None else min(LONGEST, config.context)
    windows = Windows(read_tokens(request.data, tokenizer, config.vocab), seq)
    held_out = None
    if request.eval_data:
        held_out = Windows(read_tokens(request.eval_data, tokenizer, config.vocab), seq)
    batches = Batches(windows, batch=request.batch, seed=request.seed)
    start: Mapping[str, Array] | State = source.tensors
    if saved is not None:
        saved.want("what is asked for", config, settings_of(recipe, batches, plan))
        batches.seek(saved.cursor)
        start = saved.state
        notes.append(f"goes on after step {saved.state.step} of {saved.path}")
    trainer = Trainer(
        decoder_of(config),
        start,
        made,
        recipe,
        seq=seq,
        updates=request.updates,
        host=_host(made, request.threads),
        threads=request.threads,
    )
    notes.append(f"updates: {trainer.updates.name} ({trainer.updates.why})")
    loop = Loop(trainer, batches, plan, checkpoints=checkpoints)
    return Prepared(loop, held_out, notes, source.tokenizer)


def _source(request: Request) -> Checkpoint:
    """What is to be trained; beside a new model, `model` is where its tokenizer comes from."""
    if request.from_scratch is None:
        if request.model is None:
            hint = "give --model to train one further, or --from-scratch"
            raise ConfigError("--model", "not given", hint=hint)
        return load_checkpoint(find(request.model))
    made = from_scratch(request.from_scratch, seed=request.seed)
    if request.model is None:
        return made
    other = load_checkpoint(find(request.model))
    if other.tokenizer is None:
        raise ConfigError("--model", "has no tokenizer", got=other.origin)
    return replace(made, tokenizer=other.tokenizer)


def _recipe(request: Request) -> Recipe:
    schedule = Schedule(request.lr, request.steps, request.schedule, request.warmup)
    rule = AdamW(weight_decay=request.weight_decay)
    clip = request.clip or None
    return Recipe(schedule, rule, clip=clip, loss_scale=HALF_SCALE)


def _checkpoints(request: Request) -> tuple[Checkpoints | None, Saved | None, list[str]]:
    """Where checkpoints go, the one to go on from, and what is to be said of them."""
    if request.checkpoint_dir is None:
        for name, value in (("resume", request.resume), ("save-every", request.save_every)):
            if value:
                raise ConfigError(f"--{name}", "without a folder", hint="give --checkpoint-dir")
        return None, None, ["nothing is saved: give --checkpoint-dir to keep what is learnt"]
    found = Checkpoints(request.checkpoint_dir)
    if not request.resume:
        if len(found):
            where = str(request.checkpoint_dir)
            hint = "give --resume to go on, or another folder"
            raise ConfigError(where, "holds the checkpoints of a run", hint=hint)
        return found, None, []
    saved = found.newest()
    notes = list(found.notes)
    if saved is None:
        notes.append(f"no checkpoint in {request.checkpoint_dir}: starts anew")
    return found, saved, notes


def _tokenizer(source: Checkpoint) -> Tokenizer | None:
    """The model's tokenizer, which ends documents with the model's end token."""
    found = tokenizer_of(source)
    if found is None or found.eos_ids:
        return found
    return replace(found, eos_ids=source.config.eos_ids)


def _host(device: Backend, threads: int | None) -> Backend | None:
    """Where the head runs: a device that computes in fp32 has it itself."""
    return None if device.target is None else make_backend("cpu", threads=threads)
