"""What a run of training is asked for: the options of `orion train`, as a type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType, NoneType
from typing import TypeAlias

from orion_ane.ane.targets import Target
from orion_ane.errors import ConfigError
from orion_ane.host.schedule import Shape
from orion_ane.lora.config import AdapterConfig
from orion_ane.runtime.portable import NumericsName
from orion_ane.runtime.registry import meant, takes
from orion_ane.train.updates import UpdatesName

LONGEST_WAIT_S = 1_000_000
LEARNS_IN: Mapping[str, tuple[NumericsName, ...]] = MappingProxyType(
    {"cpu": ("fp32", "bf16"), "emulator": ("exact", "fp16", "fp32")}
)
"""How a device may compute while a model learns there."""

File: TypeAlias = str | Path
Files: TypeAlias = File | Sequence[File]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A run of training, by the names and defaults of `orion train`, whose help explains each.

    Raises:
        ConfigError: settings that mean nothing together.
    """

    data: Files
    steps: int
    model: File | None = None
    from_scratch: File | None = None
    device: str = "auto"
    target: File | Target | None = None
    numerics: NumericsName | None = None
    batch: int = 8
    seq: int | None = None
    grad_accum: int = 1
    lr: float = 5e-4
    schedule: Shape = "cosine"
    warmup: int = 0
    weight_decay: float = 0.1
    clip: float = 1.0
    updates: UpdatesName = "auto"
    checkpoint_dir: File | None = None
    save_every: int = 0
    resume: bool = False
    export: File | None = None
    replace: bool = False
    eval_data: Files = ()
    eval_every: int = 0
    log_file: File | None = None
    plot: File | None = None
    tensorboard: File | None = None
    max_minutes: float | None = None
    download: bool = False
    peer_timeout: float = 600.0
    seed: int = 0
    threads: int | None = None
    adapter: AdapterConfig | None = None

    def __post_init__(self) -> None:
        _want_kinds(self)
        if self.target is not None and not takes(self.device, "target"):
            got = f"not with device {self.device}"
            raise ConfigError("target", got, want="device emulator or ane")
        if self.numerics is not None:
            _want_numerics(self.numerics, meant(self.device, self.target), self.updates)
        if self.adapter is not None and self.updates not in ("auto", "input"):
            want = "auto or input: an adapter is an input of programs that never change"
            raise ConfigError("updates", "not for an adapter", got=self.updates, want=want)
        if self.replace and self.export is None:
            raise ConfigError("replace", "nothing is written", hint="give `export`")
        if not 0 <= self.clip < math.inf:
            want = "above 0, or 0, which is no bound"
            raise ConfigError("clip", "no such norm", got=self.clip, want=want)
        if self.eval_every < 0:
            want = "0 or more steps"
            raise ConfigError("eval_every", "out of range", got=self.eval_every, want=want)
        if self.eval_every and not files(self.eval_data):
            raise ConfigError("eval_every", "without a text", hint="give `eval_data`")
        if not 0 < self.peer_timeout <= LONGEST_WAIT_S:
            want = f"above 0, up to {LONGEST_WAIT_S:,} seconds"
            raise ConfigError("peer_timeout", "no time", got=self.peer_timeout, want=want)


KINDS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("steps batch grad_accum warmup save_every eval_every seed", (int,), "a whole number"),
    ("seq threads", (int, NoneType), "a whole number, or None"),
    ("lr weight_decay clip peer_timeout", (int, float), "a number"),
    ("max_minutes", (int, float, NoneType), "a number, or None"),
    ("resume replace download", (bool,), "True or False"),
    ("device schedule updates", (str,), "a text"),
    ("numerics", (str, NoneType), "a text, or None"),
    ("target", (str, Path, Target, NoneType), "a target, or None"),
    ("model from_scratch", (str, Path, NoneType), "a name or a path, or None"),
    ("checkpoint_dir export log_file plot tensorboard", (str, Path, NoneType), "a path, or None"),
    ("adapter", (AdapterConfig, NoneType), "an AdapterConfig, or None"),
)
"""What a setting may be: a command line gives nothing else, Python may."""


def _want_kinds(config: TrainConfig) -> None:
    """Refuse what is no number, or text, or path, where it ought to be one.

    Raises:
        ConfigError: naming the first setting of another kind.
    """
    for names, kinds, want in KINDS:
        for name in names.split():
            value = getattr(config, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise ConfigError(name, "of another kind", got=repr(value), want=want)
    for name in ("data", "eval_data"):
        given = getattr(config, name)
        many = given if isinstance(given, Sequence) else (given,)
        if not all(isinstance(one, str | Path) for one in many):
            raise ConfigError(name, "of another kind", got=repr(given), want="a path, or several")


def _want_numerics(numerics: NumericsName, device: str, updates: UpdatesName) -> None:
    """Refuse numerics that would not show; `auto` is the cpu, but where a probe has passed.

    Raises:
        ConfigError: they would not.
    """
    known = LEARNS_IN.get("cpu" if device == "auto" else device)
    if known is None:
        want = f"device {' or '.join(LEARNS_IN)}"
        raise ConfigError("numerics", f"not with device {device}", want=want)
    if numerics not in known:
        others = [name for name, its in LEARNS_IN.items() if numerics in its]
        raise ConfigError(
            "numerics",
            f"not with device {device}",
            got=numerics,
            want=" or ".join(known),
            hint=f"device {others[0]} takes it" if others else None,
        )
    if numerics == "bf16" and updates == "input":
        want = "another way: in bf16 are products with stored weights"
        raise ConfigError("updates", "not with numerics bf16", got=updates, want=want)


def files(given: Files) -> tuple[Path, ...]:
    """One file or several, as paths."""
    many = (given,) if isinstance(given, str | Path) else given
    return tuple(Path(one) for one in many)


def want_writable(folder: Path, option: str) -> None:
    """Refuse a folder in which nothing can be made, before a run is lost there; make it.

    Raises:
        ConfigError: it is none, or takes no file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(option, f"{folder} takes no files", got=error.strerror) from error


def file(given: File | None) -> Path | None:
    """A file as a path, where there is one."""
    return None if given is None else Path(given)
