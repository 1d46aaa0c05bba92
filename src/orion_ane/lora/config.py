"""adapter_config.json as PEFT writes it: read strictly, and written so that PEFT reads it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import TypeAlias

from orion_ane.errors import ConfigError
from orion_ane.lora.modules import HEAD
from orion_ane.models.weights.fields import Fields

Targets: TypeAlias = str | tuple[str, ...]

ALL_LINEAR = "all-linear"
LONGEST_PATTERN = 1000
MOST_REPEATS = 6
_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[()|*+?{]", re.DOTALL)
"""What a pattern is made of, groups and what repeats aside."""
PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")
"""Ways in which A and B began that leave the base's own weights as they are."""
SAYS_NOTHING = frozenset({
    "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode",
    "peft_version", "lora_dropout", "megatron_core", "qalora_group_size", "loftq_config",
    "eva_config", "runtime_config", "ensure_weight_tying", "fan_in_fan_out",
})  # fmt: skip
"""What says nothing about what a loaded adapter computes."""
EMPTY_BY_DEFAULT = frozenset({
    "megatron_config", "trainable_token_indices", "corda_config", "lora_ga_config",
    "velora_config", "monteclora_config", "arrow_config", "kasa_config", "layer_replication",
    "target_parameters", "alora_invocation_tokens", "use_bdlora",
})  # fmt: skip
"""What PEFT writes of other kinds of adapters into every config; empty, it goes without saying."""


@dataclass(frozen=True)
class AdapterConfig:
    """What an adapter is, without its numbers.

    Attributes:
        rank, alpha: of modules that no pattern names.
        targets: the modules that carry it: ends of their names, or one regular expression.
        exclude: likewise, those that do not.
        dropout: of what enters A, in training.
        rank_pattern, alpha_pattern: other ranks and alphas, by ends of names as expressions.
        rank_stabilised: the scale is α/√r, not α/r.
        layers: those that carry it; None is all.
        layers_pattern: what stands before a layer's number; empty is anything.
        saved: modules that come whole, with weights of their own.
        base: the model that it was made for, as its writer called it.
    """

    rank: int
    alpha: float
    targets: Targets
    exclude: Targets = ()
    dropout: float = 0.0
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)
    rank_stabilised: bool = False
    layers: tuple[int, ...] | None = None
    layers_pattern: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    base: str = ""

    def rank_of(self, path: str) -> int:
        """The rank of a module."""
        return int(_by_pattern(self.rank_pattern, path, self.rank))

    def scale_of(self, path: str, rank: int) -> float:
        """What B A x is multiplied by."""
        alpha = _by_pattern(self.alpha_pattern, path, self.alpha)
        return alpha / (sqrt(rank) if self.rank_stabilised else rank)

    def carries(self, path: str) -> bool:
        """Whether a linear of this name carries it."""
        if _named(self.exclude, path) or any(
            _matches(rf"(^|.*\.){m}($|\..*)", path, whole=False) for m in self.saved
        ):
            return False
        if self.targets == ALL_LINEAR:
            return path != HEAD
        if path in self.targets and not isinstance(self.targets, str):
            return True  # by its whole name, whatever its layer
        if not _named(self.targets, path):
            return False
        return isinstance(self.targets, str) or self._in_layers(path)

    def _in_layers(self, path: str) -> bool:
        if not self.layers:
            return True
        if not self.layers_pattern:
            found = re.match(r".*?\.[^.]*\.(\d+)\.", path)
            return found is not None and int(found[1]) in self.layers
        for pattern in self.layers_pattern:
            if found := re.match(rf"(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.", path):
                return int(found["idx"]) in self.layers
        return False


def made_for(base: str) -> str:
    """The way out where an adapter does not fit, by what its config says of its model."""
    if not base:
        return "was it made for another model? its config names none"
    return f"its config says that it was made for {base}: give that model, or another adapter"


def read_config(path: Path, document: Mapping[str, object]) -> tuple[AdapterConfig, list[str]]:
    """PEFT's adapter_config.json, and what people should know of it.

    Fields of other kinds of adapters that are empty, as PEFT has them by default, say nothing;
    empty ones that nobody here knows are passed over with one note.

    Raises:
        ConfigError: a field that cannot be honoured, by its name.
    """
    where = str(path)
    fields = Fields(where, {k: v for k, v in document.items() if k not in SAYS_NOTHING})
    fields.only("peft_type", "LORA")
    fields.only("bias", "none")
    fields.only("init_lora_weights", *PLAIN_STARTS)
    for name in ("use_dora", "lora_bias", "use_qalora"):
        fields.only(name, False)
    found = AdapterConfig(
        rank=fields.size("r", 8),
        alpha=fields.number("lora_alpha", 8),
        targets=_targets(fields, "target_modules"),
        exclude=_targets(fields, "exclude_modules"),
        dropout=_dropout(where, document),
        rank_pattern={k: _rank(where, v) for k, v in _pattern(fields, "rank_pattern").items()},
        alpha_pattern={k: _alpha(where, v) for k, v in _pattern(fields, "alpha_pattern").items()},
        rank_stabilised=fields.flag("use_rslora", default=False),
        layers=_layers(fields),
        layers_pattern=_texts(fields, "layers_pattern"),
        saved=_texts(fields, "modules_to_save"),
        base=str(document.get("base_model_name_or_path") or ""),
    )
    left = [name for name, value in document.items() if not _is_known(name)]
    idle = [name for name in left if not document[name]]
    fields.finish(harmless=idle, hint="such an adapter computes something else than LoRA does here")
    if not (strange := [name for name in idle if name not in EMPTY_BY_DEFAULT]):
        return found, []
    return found, [f"{path.name}: empty fields, not known here: {', '.join(strange[:100])}"]


KNOWN = frozenset({
    "peft_type", "bias", "init_lora_weights", "use_dora", "lora_bias", "use_qalora", "r",
    "lora_alpha", "target_modules", "exclude_modules", "rank_pattern", "alpha_pattern",
    "use_rslora", "layers_to_transform", "layers_pattern", "modules_to_save",
})  # fmt: skip


def _is_known(name: str) -> bool:
    return name in KNOWN or name in SAYS_NOTHING


def written(config: AdapterConfig, *, is_conv1d: bool) -> dict[str, object]:
    """The document of a config, as PEFT reads it."""
    targets = config.targets
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": config.base,
        "inference_mode": True,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": targets if isinstance(targets, str) else list(targets),
        "exclude_modules": config.exclude
        if isinstance(config.exclude, str)
        else list(config.exclude) or None,
        "rank_pattern": dict(config.rank_pattern),
        "alpha_pattern": dict(config.alpha_pattern),
        "use_rslora": config.rank_stabilised,
        "layers_to_transform": None if config.layers is None else list(config.layers),
        "layers_pattern": list(config.layers_pattern) or None,
        "modules_to_save": list(config.saved) or None,
        "fan_in_fan_out": is_conv1d,
        "bias": "none",
        "use_dora": False,
        "init_lora_weights": True,
    }


def _targets(fields: Fields, name: str) -> Targets:
    value = fields.get(name)
    if isinstance(value, str):
        return ALL_LINEAR if value.lower() == ALL_LINEAR else _expression(fields.where, value)
    if value is None or value == []:
        return ()
    return _listed_texts(fields.where, name, value)


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    value = fields.get(name)
    if value is None or value == []:
        return ()
    return _listed_texts(fields.where, name, [value] if isinstance(value, str) else value)


def _listed_texts(where: str, name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ConfigError(where, f"no such {name}", got=value, want="a text, or a list of texts")
    return tuple(_expression(where, one) for one in value)


def _expression(where: str, text: str) -> str:
    """A text that may stand as, or in, a regular expression."""
    if len(text) > LONGEST_PATTERN:
        want = f"at most {LONGEST_PATTERN} characters"
        raise ConfigError(where, "a pattern is too long", got=len(text), want=want)
    if not _is_tame(text):
        want = f"no repetition of what may vary, and at most {MOST_REPEATS} repetitions"
        raise ConfigError(where, "a pattern may take for ever", got=text, want=want)
    try:
        re.compile(rf"(.*\.)?({text})$")
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(where, "not a pattern", got=text, want=str(error)) from error
    return text


def _is_tame(pattern: str) -> bool:
    """Whether backtracking through it ends soon on any name.

    What is repeated may neither repeat nor choose inside, and few things are repeated one after
    the other.
    """
    varies, repeats, at, last = [False], 0, 0, False  # by open group; of the last one
    while at < len(pattern):
        mark = pattern[at]
        if found := _ATOM.match(pattern, at):
            at, last = found.end(), False
            continue
        at += 1
        if mark == "(":
            varies.append(False)
            at += 2 if pattern.startswith("?", at) else 0
        elif mark == ")" and len(varies) > 1:
            last = varies.pop()
            varies[-1] |= last
        elif mark == "|":
            varies[-1], last = True, False
        elif mark in "*+?{":
            if last and mark != "?":
                return False
            repeats += 1
            varies[-1] = True
            at = max(at, pattern.find("}", at) + 1) if mark == "{" else at
            at += pattern.startswith(("?", "+"), at)  # lazy, or never given back
    return repeats <= MOST_REPEATS


def _pattern(fields: Fields, name: str) -> dict[str, object]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(fields.where, f"no such {name}", got=value, want="values by names")
    return {_expression(fields.where, key): one for key, one in value.items()}


def _rank(where: str, value: object) -> int:
    return Fields(where, {"rank_pattern": value}).size("rank_pattern")


def _alpha(where: str, value: object) -> float:
    return Fields(where, {"alpha_pattern": value}).number("alpha_pattern")


def _dropout(where: str, document: Mapping[str, object]) -> float:
    found = Fields(where, document).number("lora_dropout", 0.0)
    if not 0 <= found <= 1:
        raise ConfigError(where, "no such lora_dropout", got=found, want="0 to 1")
    return found


def _layers(fields: Fields) -> tuple[int, ...] | None:
    if fields.get("layers_to_transform") in (None, []):
        return None
    return fields.ids("layers_to_transform")


def _named(names: Targets, path: str) -> bool:
    if isinstance(names, str):
        return _matches(names, path, whole=True)
    return path in names or any(path.endswith(f".{name}") for name in names)


def _matches(pattern: str, path: str, *, whole: bool) -> bool:
    return (re.fullmatch if whole else re.match)(pattern, path) is not None


def _by_pattern(patterns: Mapping[str, float], path: str, default: float) -> float:
    """The value of the first pattern that a name ends in."""
    found = (v for key, v in patterns.items() if _matches(rf"(.*\.)?({key})$", path, whole=False))
    return next(found, default)


def suffixes(paths: Collection[str], every: Collection[str]) -> Sequence[str]:
    """Names of modules as short as they are the same set: their ends where all layers have them."""

    def end(path: str) -> str:
        words = path.split(".")
        numbers = [i for i, word in enumerate(words) if word.isdigit()]
        return ".".join(words[numbers[0] + 1 :]) if numbers else path

    ends = dict.fromkeys(end(path) for path in paths)
    covered = {path for path in every if end(path) in ends}
    if covered == set(paths):
        return [*ends]
    return sorted(paths)
