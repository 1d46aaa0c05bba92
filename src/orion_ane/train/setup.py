"""From what a user asks for to a run that can start, or go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from orion_ane.artefacts.atomic import want_room
from orion_ane.artefacts.written import want_apart
from orion_ane.errors import ConfigError
from orion_ane.host.adamw import AdamW
from orion_ane.host.schedule import Schedule
from orion_ane.host.score import Score
from orion_ane.lora.adapted import Adapted, tensors_of
from orion_ane.lora.adapter import fresh, merged, want_known
from orion_ane.lora.files import is_adapter, save_adapter
from orion_ane.models.build import decoder_of, document_tokenizer_of
from orion_ane.models.config import ModelConfig
from orion_ane.models.decoder import Decoder
from orion_ane.models.registry import find
from orion_ane.models.scratch import from_scratch
from orion_ane.models.weights import Checkpoint, TokenizerFiles, TokenizerSource, load_checkpoint
from orion_ane.models.weights.export import export, want_exportable, will_miss
from orion_ane.runtime.backend import Backend, numerics_of
from orion_ane.runtime.registry import backend as make_backend
from orion_ane.runtime.registry import meant, takes
from orion_ane.train.checkpoint import Checkpoints, Saved
from orion_ane.train.config import TrainConfig, file, files, want_writable
from orion_ane.train.corpus import read_tokens
from orion_ane.train.data import Batches, Windows
from orion_ane.train.evaluation import evaluate
from orion_ane.train.loop import Loop, Plan, device_words, settings_of
from orion_ane.train.peers import Peers
from orion_ane.train.state import State
from orion_ane.train.step import Recipe, Trainer
from orion_ane.types import Array

LONGEST = 256
"""Tokens of a sequence where nothing is asked for, if the model's context allows."""
HALF_SCALE = 16.0
"""Of the loss on a device in fp16: from 1 to 256 gradients of stories260K are as good as fp16 can
have them, from 1,024 they overflow."""


@dataclass(eq=False)
class Prepared:
    """A run that can start.

    Attributes:
        loop: the steps that are left.
        held_out: what its losses are measured on besides; None where nothing was asked for.
        notes: for people: what was passed over, and where it goes on.
        tokenizer: where the model's comes from.
        frozen: the tensors that are not learnt.
    """

    loop: Loop
    held_out: Windows | None
    notes: list[str]
    tokenizer: TokenizerSource | None = None
    frozen: Mapping[str, Array] = field(default_factory=dict)

    def model(self) -> Checkpoint:
        """The model as it is now, its tensors those that further steps write to."""
        trainer = self.loop.trainer
        config, tensors = trainer.decoder.config, trainer.state.masters
        if isinstance(trainer.decoder, Adapted):
            config, merged_in = merged(trainer.decoder.learnt(tensors), self.frozen)
            return Checkpoint(config, merged_in, self.tokenizer, "fp32", "training")
        return Checkpoint(config, tensors, self.tokenizer, "fp32", "training")

    def export(self, path: Path, *, replace: bool = False) -> list[str]:
        """Write the model as it is now, or its adapter; see `models.weights.export`."""
        trainer = self.loop.trainer
        if isinstance(trainer.decoder, Adapted):
            save_adapter(path, trainer.decoder.learnt(trainer.state.masters), replace=replace)
            return []
        config, tensors = trainer.decoder.config, trainer.state.masters
        return export(path, config, tensors, self.tokenizer, replace=replace)

    def evaluation(self) -> Score | None:
        """The loss over the held-out text, as the model is now."""
        if self.held_out is None:
            return None
        trainer = self.loop.trainer
        peers = trainer.peers
        own = islice(self.held_out.every(1), peers.rank, None, peers.size)
        return evaluate(trainer.network, own, trainer.state.masters, peers)


def prepare(config: TrainConfig, peers: Peers) -> Prepared:
    """The run that is asked for; what cannot be is refused before anything is compiled.

    Raises:
        ConfigError: no such model or setting, or a checkpoint of another run.
        CheckpointError: weights or checkpoints that cannot be read.
        DataError: data that cannot be used.
        BackendError: no such device, or one that would keep old weights.
    """
    options = {} if config.target is None else {"target": config.target}
    if config.numerics is not None:
        options["numerics"] = config.numerics
    threads = peers.threads(config.threads)
    many = threads if takes(config.device, "threads") else None  # else they are the host's
    made = make_backend(config.device, threads=many, **options)
    learns = None if config.adapter is None else asdict(config.adapter)
    plan = Plan(config.grad_accum, config.save_every, config.max_minutes, learns=learns)
    recipe = _recipe(config)
    checkpoints, saved, notes = _checkpoints(config) if peers.is_first else (None, None, [])
    if (told := _told(made, config)) is not None:
        notes.insert(0, told)
    source = _source(config)
    shape, tokenizer = source.config, document_tokenizer_of(source)
    if (out := file(config.export)) is not None:
        _want_room(out, config, shape)
        notes += will_miss(out, source.tokenizer)
    if config.from_scratch is not None and config.model is None:
        notes += _told_tokenizer(source)
    seq = config.seq if config.seq is not None else min(LONGEST, shape.context)
    if not 1 <= seq <= shape.context:  # before texts are read, which take long
        want = f"1 to the context of {shape.context}"
        raise ConfigError("seq", "does not fit the model", got=seq, want=want)
    windows = Windows(read_tokens(files(config.data), tokenizer, shape.vocab), seq)
    held_out = None
    if eval_data := files(config.eval_data):
        held_out = Windows(read_tokens(eval_data, tokenizer, shape.vocab), seq)
    part = (peers.rank, peers.size)
    batches = Batches(windows, batch=config.batch * peers.size, seed=config.seed, part=part)
    decoder, start, frozen = _learnt(config, source)
    state = State.fresh(start, loss_scale=recipe.loss_scale)
    if saved is not None:
        saved.want("what is asked for", shape, settings_of(recipe, batches, plan))
        batches.seek(saved.cursor)
        state = saved.state
        notes.append(f"goes on after step {saved.state.step} of {saved.path}")
        if saved.device not in ("", here := device_words(made)):
            notes.append(f"began on {saved.device}, goes on on {here}: losses agree to rounding")
    settings = settings_of(recipe, batches, plan)
    data = {name: batches.cursor[name] for name in ("data", "seed")}
    own = {"model": asdict(shape), "settings": settings, "numerics": numerics_of(made)}
    peers.want_same({**own, **data})
    batches.seek(peers.share(state, batches.cursor))
    trainer = Trainer(
        decoder,
        state,
        made,
        recipe,
        seq=seq,
        updates=config.updates if config.adapter is None else "input",
        host=_host(made, threads),
        peers=peers,
        threads=threads,
        frozen=frozen,
        dropout=decoder.dropout(config.seed) if isinstance(decoder, Adapted) else None,
    )
    if config.adapter is not None:
        trainer.updates.why = "adapters are inputs of programs that stay as they are"
    notes.append(f"updates: {trainer.updates.name} ({trainer.updates.why})")
    loop = Loop(trainer, batches, plan, checkpoints=checkpoints)
    return Prepared(loop, held_out, notes, source.tokenizer, frozen)


def _told(made: Backend, config: TrainConfig) -> str | None:
    """Which device it is, where nobody has said so or how it computes shows."""
    auto = meant(config.device, config.target) == "auto"
    if made.target is None:
        return f"device: {made.name} (auto)" if auto else None
    return f"device: {device_words(made)}" + (", auto" if auto else "")


def _learnt(
    config: TrainConfig, source: Checkpoint
) -> tuple[Decoder, Mapping[str, Array], Mapping[str, Array]]:
    """The model, the tensors of it that are learnt, and those that stay as they are."""
    decoder = decoder_of(source.config)
    if config.adapter is None:
        return decoder, source.tensors, {}
    new = fresh(source.config, config.adapter, seed=config.seed)
    want_known(source.config, config.adapter)
    return Adapted(decoder, config.adapter), tensors_of(new), source.tensors


def _want_room(out: Path, config: TrainConfig, shape: ModelConfig) -> None:
    """Refuse what cannot be written later.

    Raises:
        ConfigError: it cannot, or what the run reads would go.
    """
    want_apart("export", out, _read(config))
    if config.adapter is None:
        want_exportable(out, shape, replace=config.replace)
    elif out.suffix == ".bin":
        raise ConfigError("export", "not a folder, as an adapter is", got=str(out))
    else:
        want_room(out, is_adapter, replace=config.replace)
    want_writable(out.parent, "export")


def _read(config: TrainConfig) -> list[str | Path]:
    """What the run reads: models, named ones too, and texts."""
    models = [] if config.model is None else [find(config.model)]
    shape = [] if config.from_scratch is None else [config.from_scratch]
    return [*models, *shape, *files(config.data), *files(config.eval_data)]


def _source(config: TrainConfig) -> Checkpoint:
    """What is to be trained; beside a new model, `model` is where its tokenizer comes from."""
    if config.from_scratch is None:
        if config.model is None:
            anew = "" if config.adapter else " to train one further, or `from_scratch`"
            hint = f"give `model`{anew}"
            raise ConfigError("model", "not given", hint=hint)
        return load_checkpoint(find(config.model, download=config.download))
    made = from_scratch(config.from_scratch, seed=config.seed, download=config.download)
    if config.model is None:
        return made
    other = load_checkpoint(find(config.model, download=config.download))
    if other.tokenizer is None:
        raise ConfigError("model", "has no tokenizer", got=other.origin)
    return replace(made, tokenizer=other.tokenizer)


def _told_tokenizer(source: Checkpoint) -> list[str]:
    """Which tokenizer a new model has, where nobody named one."""
    if not isinstance(source.tokenizer, TokenizerFiles):
        return []
    files = source.tokenizer.files
    where = next(iter(files.values())).parent
    return [f"tokenizer: {', '.join(files)} in {where}; --model names another model's"]


def _recipe(config: TrainConfig) -> Recipe:
    schedule = Schedule(config.lr, config.steps, config.schedule, config.warmup)
    rule = AdamW(weight_decay=config.weight_decay)
    clip = config.clip or None
    return Recipe(schedule, rule, clip=clip, loss_scale=HALF_SCALE)


def _checkpoints(config: TrainConfig) -> tuple[Checkpoints | None, Saved | None, list[str]]:
    """Where checkpoints go, the one to go on from, and what is to be said of them."""
    folder = file(config.checkpoint_dir)
    if folder is None:
        for name, value in (("resume", config.resume), ("save_every", config.save_every)):
            if value:
                raise ConfigError(name, "without a folder", hint="give `checkpoint_dir`")
        if config.export is not None:
            note = (
                "no checkpoints: a run that breaks off cannot be resumed without --checkpoint-dir"
            )
            return None, None, [note]
        return None, None, ["nothing is saved: give --checkpoint-dir to keep what is learnt"]
    if config.resume and not folder.exists():
        beside = [one.name for one in folder.parent.glob("*") if one.is_dir()]
        near = get_close_matches(folder.name, beside, n=1)
        meant = f"did you mean {folder.parent / near[0]}? " if near else ""
        hint = f"{meant}a run that begins is without `resume`"
        raise ConfigError("checkpoint_dir", "no such folder to resume", got=folder, hint=hint)
    want_writable(folder, "checkpoint_dir")
    found = Checkpoints(folder)
    if not config.resume:
        if len(found):
            where = str(folder)
            hint = "give `resume` to go on, or another folder"
            raise ConfigError(where, "holds the checkpoints of a run", hint=hint)
        return found, None, []
    saved = found.newest()
    notes = list(found.notes)
    if saved is None:
        notes.append(f"no checkpoint in {folder}: starts anew")
    return found, saved, notes


def _host(device: Backend, threads: int | None) -> Backend | None:
    """Where the head runs: a device that computes in fp32 has it itself."""
    return None if device.target is None else make_backend("cpu", threads=threads)
