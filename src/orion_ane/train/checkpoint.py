"""Checkpoints of a run: folders that are there whole or not at all, the newest few of them.

A folder `step-00000010` holds `state.safetensors`, the masters and both moments of every tensor in
fp32, and `checkpoint.json`: a line with the SHA-256 of what follows it, then the document.  It is
filled under another name, flushed, and renamed, so a run that is killed at any instant leaves the
checkpoint before; what was half written is cleared away by the next that saves.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from orion_ane.artefacts.atomic import flush_folder, folder_beside
from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.host.adamw import Moments
from orion_ane.models.config import ModelConfig
from orion_ane.models.weights.documents import parse_json
from orion_ane.models.weights.safetensors import open_safetensors
from orion_ane.train.settings import differences, option, plain, read_repr
from orion_ane.train.state import State
from orion_ane.train.tensor_file import Written, want_written, write_pieces, write_tensors
from orion_ane.types import Array

MAGIC = "orion-training"
FORMAT = 2
READABLE = (1, 2)
TENSORS, DOCUMENT = "state.safetensors", "checkpoint.json"
COUNTS = ("step", "updates", "skipped", "tokens_seen", "streak")
KINDS = ("master", "mean", "square")
MAX_DOCUMENT = 1 << 26
NAME = re.compile(r"step-(\d{8,})")
HALF = re.compile(r"\.step-\d{8,}\..*")  # being written, replaced, or thrown away
ANOTHER = "give what it began with, or another folder"

Kind = TypeVar("Kind")


@dataclass(frozen=True, eq=False)
class Run:
    """Where a run stands.

    Attributes:
        config: the model's shape.
        state: what was learnt.
        settings: how it learns: whatever has to be the same for the run to go on unchanged.
        cursor: the place in the data.
        rng: states of generators, by name.
        device: what computes, for people.
    """

    config: ModelConfig
    state: State
    settings: Mapping[str, Any] = field(default_factory=dict)
    cursor: Mapping[str, Any] = field(default_factory=dict)
    rng: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint as it was read; its arrays may be written to.

    Attributes:
        path: the folder.
        config: the model's shape as a document has it.
        code: the version that wrote it.
        state, settings, cursor, rng: as in `Run`.
        note: what is not as the present format has it; None where all is.
        device: as in `Run`; empty where it is not told.
    """

    path: Path
    config: Mapping[str, Any]
    code: str
    state: State
    settings: Mapping[str, Any]
    cursor: Mapping[str, Any]
    rng: Mapping[str, Any]
    note: str | None = None
    device: str = ""

    def want(self, run: str, config: ModelConfig, settings: Mapping[str, Any]) -> None:
        """Refuse to go on with another model, or in another way.

        Args:
            run: who asks, as messages name it.
            config: the model.
            settings: those that have to be the same.

        Raises:
            ConfigError: naming everything that differs.
        """
        told = {"tied": True, **self.config}  # which GPT-2's did not say while it always was
        if models := list(differences(told, plain(asdict(config)))):
            raise ConfigError(
                str(self.path),
                f"{run} has another model",
                got=", ".join(f"{at} {asked}" for at, _, asked in models),
                want=", ".join(f"{at} {began}" for at, began, _ in models),
                hint=ANOTHER,
            )
        began = dict(self.settings)
        if isinstance(began.get("learns"), str):
            began["learns"] = read_repr(began["learns"])
        if differing := list(differences(began, plain(dict(settings)))):
            self._refuse(differing)

    def _refuse(self, differing: list[tuple[str, Any, Any]]) -> NoReturn:
        """Say which settings differ, as the command has them.

        Raises:
            ConfigError: always.
        """
        # A constant rate does not ask how many steps there are.
        differing = [one for one in differing if one[0] != "schedule.steps" or None not in one]
        asked = ", ".join(option(at, want) for at, _, want in differing)
        began = ", ".join(option(at, got) for at, got, _ in differing)
        hint = ANOTHER
        if [at for at, *_ in differing] == ["schedule.steps"]:
            hint += "; only a run that began with --schedule constant takes other --steps"
        where = self.path.parent
        raise ConfigError(asked, f"the run in {where} began with {began}", hint=hint)


class Checkpoints:
    """The checkpoints of one run in a folder, for one process at a time.

    Args:
        folder: made when the first is saved.
        keep: how many of the newest stay.

    Attributes:
        notes: why some were passed over by `newest`, and what is said of the one it took.

    Raises:
        ConfigError: none would be kept.
    """

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        if keep < 1:
            raise ConfigError("checkpoints", "none would be kept", got=keep, want="at least 1")
        self.folder, self.keep = folder, keep
        self.notes: list[str] = []
        self._is_clear = False

    def save(self, run: Run) -> Path:
        """Write a checkpoint, on the disk when this returns, then let the oldest go.

        One of the same step that is there already, and cannot be read, makes room.

        Raises:
            CheckpointError: the disk is full or refuses, and what was there is as it was; a good
                one of this step is there; or the state is torn.
        """
        if run.state.is_torn:
            raise CheckpointError(
                str(self.folder), "nothing is saved: a step broke off while weights moved"
            )
        path = self.folder / f"step-{run.state.step:08d}"
        try:
            self._clear_halves()
            if path.exists():
                self._make_room(path)
            with folder_beside(path) as made:
                _write(made, run)
            self._rotate()
        except OSError as error:
            raise CheckpointError(
                str(path),
                f"cannot be written ({error.strerror})",
                hint="the checkpoint before it is as it was",
            ) from error
        return path

    def newest(self) -> Saved | None:
        """The newest that is good; None where there is none at all.

        Raises:
            CheckpointError: there are some, and every one is damaged.
        """
        self.notes = []
        first: CheckpointError | None = None
        for path in reversed(self._all()):
            try:
                found = load(path)
            except CheckpointError as error:
                first = first or error
                self.notes.append(f"passed over: {error}")
            else:
                self.notes += [found.note] if found.note else []
                return found
        if first is not None:
            raise first
        return None

    def __len__(self) -> int:
        """How many there are, good or not."""
        return len(self._all())

    def _all(self) -> list[Path]:
        """The folders by step."""
        if not self.folder.is_dir():
            return []
        found = [(NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        return [path for _, path in sorted((int(m[1]), path) for m, path in found if m)]

    def _rotate(self) -> None:
        for path in self._all()[: -self.keep]:
            _discard(path)

    def _make_room(self, path: Path) -> None:
        try:
            load(path)
        except CheckpointError:
            _discard(path)
            return
        raise CheckpointError(str(path), "is there already", hint="resume it, or save elsewhere")

    def _clear_halves(self) -> None:
        """Throw away what a killed process left."""
        if self._is_clear or not self.folder.is_dir():
            return
        for path in list(self.folder.iterdir()):
            if HALF.fullmatch(path.name):
                shutil.rmtree(path)
        self._is_clear = True


def _discard(path: Path) -> None:
    """Have a checkpoint go at once: under another name first, so that no half of it is found."""
    going = path.with_name(f".{path.name}.old")
    path.rename(going)
    flush_folder(path.parent)
    shutil.rmtree(going)


def _write(folder: Path, run: Run) -> None:
    state = run.state
    arrays = {f"master.{name}": array for name, array in state.masters.items()}
    arrays |= {f"mean.{name}": moments.mean for name, moments in state.moments.items()}
    arrays |= {f"square.{name}": moments.square for name, moments in state.moments.items()}
    written = write_tensors(folder / TENSORS, arrays)
    document = {
        "format": MAGIC,
        "version": FORMAT,
        "code": version("orion-ane"),
        **{name: getattr(state, name) for name in COUNTS},
        "loss_scale": state.loss_scale,
        "scales": state.scales,
        "config": plain(asdict(run.config)),
        "settings": plain(dict(run.settings)),
        "cursor": plain(dict(run.cursor)),
        "rng": plain(dict(run.rng)),
        "device": run.device,
        "files": {TENSORS: asdict(written)},
    }
    text = json.dumps(document, indent=1, allow_nan=False).encode()
    line = hashlib.sha256(text).hexdigest().encode() + b"\n"
    write_pieces(folder / DOCUMENT, (line, text))


def load(path: Path) -> Saved:
    """A checkpoint, every byte of it checked.

    Raises:
        CheckpointError: something is missing, damaged, or of another version; it says which.
    """
    document = _document(path / DOCUMENT)
    where = str(path / DOCUMENT)
    files = _of(where, document, "files", dict)
    described = _of(where, files, TENSORS, dict)
    want = Written(_of(where, described, "bytes", int), _of(where, described, "sha256", str))
    want_written(path / TENSORS, want)
    masters, means, squares = _arrays(path / TENSORS)
    moments = {name: Moments(means[name], squares[name]) for name in masters}
    state = State(masters, moments, loss_scale=_of(where, document, "loss_scale", float))
    for name in COUNTS:
        setattr(state, name, _of(where, document, name, int))
    note: str | None = f"{path}: of an older format: the scales of gradients are chosen anew"
    if document["version"] != 1:
        note, scales = None, _of(where, document, "scales", dict)
        state.scales = {name: _of(where, scales, name, float) for name in scales}
    return Saved(
        path=path,
        config=_of(where, document, "config", dict),
        code=_of(where, document, "code", str),
        state=state,
        settings=_of(where, document, "settings", dict),
        cursor=_of(where, document, "cursor", dict),
        rng=_of(where, document, "rng", dict),
        note=note,
        device=str(document.get("device", "")),
    )


def _document(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT)
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    line, _, text = data.partition(b"\n")
    if not re.fullmatch(rb"[0-9a-f]{64}", line):
        raise CheckpointError(str(path), "not a checkpoint of training", want="a line of SHA-256")
    if hashlib.sha256(text).hexdigest().encode() != line:
        raise CheckpointError(str(path), "damaged: not the document that was written")
    found = parse_json(str(path), text)
    if found.get("format") != MAGIC:
        raise CheckpointError(str(path), "another format", got=found.get("format"), want=MAGIC)
    if found.get("version") not in READABLE:
        raise CheckpointError(
            str(path),
            "another version of the format",
            got=found.get("version"),
            want=" or ".join(map(str, READABLE)),
            hint=f"it was written by orion-ane {found.get('code')}; resume with that",
        )
    return found


def _of(where: str, document: Mapping[str, object], name: str, kind: type[Kind]) -> Kind:
    value = document.get(name)
    if type(value) is not kind:
        got = type(value).__name__
        raise CheckpointError(where, f"no such {name}", got=got, want=kind.__name__)
    return value


def _arrays(path: Path) -> tuple[dict[str, Array], ...]:
    """Masters, means and squares by tensor, as arrays of their own."""
    found: dict[str, dict[str, Array]] = {kind: {} for kind in KINDS}
    for name, stored in open_safetensors(path).tensors.items():
        kind, _, tensor = name.partition(".")
        if kind not in found or stored.kind != "fp32" or stored.read is None:
            raise CheckpointError(str(path), "no such tensor", got=f"{name} {stored.kind}")
        found[kind][tensor] = np.array(stored.read(), np.float32)
    shapes = [{name: a.shape for name, a in found[kind].items()} for kind in KINDS]
    if not shapes[0] == shapes[1] == shapes[2]:
        raise CheckpointError(str(path), "masters and moments are not of the same tensors")
    return tuple(found[kind] for kind in KINDS)
