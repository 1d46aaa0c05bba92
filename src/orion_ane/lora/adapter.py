"""An adapter: low-rank matrices beside a model's linears, and tables that it brings whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType

import numpy as np

from orion_ane.engine.products import multiply
from orion_ane.errors import ConfigError
from orion_ane.lora.config import AdapterConfig, suffixes
from orion_ane.lora.modules import HEAD, Module, head_name, modules_of, table_name
from orion_ane.models.config import GPT2Config, ModelConfig
from orion_ane.models.weights.tensors import frozen
from orion_ane.types import Array

HALF_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True, eq=False)
class LowRank:
    """What a matrix W becomes by an adapter: W + scale · B A.

    Attributes:
        a: [r, I].
        b: [O, r].
        scale: α/r, or α/√r.
    """

    a: Array
    b: Array
    scale: float

    @property
    def rank(self) -> int:
        """Rows of A."""
        return int(self.a.shape[0])

    def delta(self) -> Array:
        """What is added to W, [O, I] in fp32; how many processors there are does not show."""
        product = multiply(self.b.astype(np.float32), self.a.astype(np.float32))
        with np.errstate(over="ignore", invalid="ignore"):  # whoever adds it looks
            return product * np.float32(self.scale)


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter of one model.

    Attributes:
        config: what it is, without its numbers.
        model: the shape that it fits.
        matrices: by the path of their linear.
        tables: the head (`lm_head`) and the token vectors (`embed`), where it brings its own.
        origin: where it was read.
        notes: what people should know of it.
    """

    config: AdapterConfig
    model: ModelConfig
    matrices: Mapping[str, LowRank]
    tables: Mapping[str, Array]
    origin: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrices", MappingProxyType(dict(self.matrices)))
        object.__setattr__(self, "tables", MappingProxyType(dict(self.tables)))

    @property
    def rank(self) -> int:
        """The largest of its ranks."""
        return max((one.rank for one in self.matrices.values()), default=0)

    @property
    def name(self) -> str:
        """What errors call it: its folder's name."""
        return Path(self.origin).resolve().name

    @property
    def elements(self) -> int:
        """The numbers in its matrices and tables."""
        pairs = ((one.a, one.b) for one in self.matrices.values())
        return sum(a.size + b.size for a, b in pairs) + sum(t.size for t in self.tables.values())

    def parts(self) -> dict[str, LowRank]:
        """The matrices by canonical name, fused ones apart; the head is `lm_head`."""
        modules, found = modules_of(self.model), {}
        for path, one in self.matrices.items():
            for name, rows in modules[path].parts.items():
                found[name] = LowRank(one.a, one.b[rows.start : rows.stop], one.scale)
        return found


def fresh(model: ModelConfig, config: AdapterConfig, *, seed: int, origin: str = "new") -> Adapter:
    """An adapter that changes nothing yet: A is drawn by the seed, B is zeros.

    Raises:
        ConfigError: no linear of the model is among the targets, or an alpha by which none learns.
    """
    if not config.alpha or not isfinite(config.alpha):
        want = "a finite number that is not 0: what is added is multiplied by it"
        raise ConfigError("alpha", "nothing would be learnt", got=config.alpha, want=want)
    matrices = {}
    every = modules_of(model)
    chosen = selected(every, config)
    for i, (path, module) in enumerate(every.items()):
        if path not in chosen:
            continue
        rank = config.rank_of(path)
        bound = np.sqrt(3 / module.columns) / np.sqrt(3)  # as a linear of torch is begun, a = √5
        rng = np.random.default_rng([seed, i])
        a = rng.uniform(-bound, bound, (rank, module.columns)).astype(np.float32)
        b = np.zeros((module.rows, rank), np.float32)
        matrices[path] = LowRank(a, b, config.scale_of(path, rank))
    return Adapter(config, model, matrices, {}, origin)


def want_known(model: ModelConfig, config: AdapterConfig) -> None:
    """Refuse a target that is nothing here, though others are: less would be learnt than was meant.

    Raises:
        ConfigError: no linear of the model has such a name.
    """
    if isinstance(config.targets, str):
        return
    paths = modules_of(model)
    unknown = [n for n in config.targets if not any(f".{p}".endswith(f".{n}") for p in paths)]
    if unknown:
        ends = ", ".join(sorted({path.rpartition(".")[2] for path in paths}))
        got = ", ".join(unknown)
        raise ConfigError("targets", "this model has no such linear", got=got, want=ends)


def selected(
    modules: Mapping[str, Module], config: AdapterConfig, *, where: str = "targets"
) -> list[str]:
    """The linears that a config names; `where` is what an error calls its targets.

    Raises:
        ConfigError: none.
    """
    found = [path for path in modules if config.carries(path)]
    if not found and not config.saved:
        examples = ", ".join(list(modules)[:3])
        raise ConfigError(
            where,
            "no linear of this model has such a name",
            got=config.targets if isinstance(config.targets, str) else ", ".join(config.targets),
            want=f"all-linear, or ends of names such as {examples}",
        )
    return found


def of_matrices(
    model: ModelConfig,
    matrices: Mapping[str, LowRank],
    tables: Mapping[str, Array] | None = None,
    *,
    base: str = "",
) -> Adapter:
    """An adapter from matrices, its config told by them."""
    ranks = {path: one.rank for path, one in matrices.items()}
    alphas = {path: one.scale * one.rank for path, one in matrices.items()}
    rank, alpha = _commonest(ranks.values(), 8), _commonest(alphas.values(), 8.0)
    config = AdapterConfig(
        rank=int(rank),
        alpha=alpha,
        targets=tuple(suffixes(list(matrices), list(modules_of(model)))),
        rank_pattern={path: r for path, r in ranks.items() if r != rank},
        alpha_pattern={path: a for path, a in alphas.items() if a != alpha},
        saved=tuple(_saved_name(model, name) for name in tables or {}),
        base=base,
    )
    return Adapter(config, model, matrices, tables or {})


def merged(adapter: Adapter, tensors: Mapping[str, Array]) -> tuple[ModelConfig, dict[str, Array]]:
    """The model with the adapter in its weights, in fp32: its shape, and canonical tensors.

    A head that was tied to the token vectors becomes a matrix of its own where one of the two
    alone is changed.

    Raises:
        ConfigError: a sum that fp32 has no room for.
    """
    model = adapter.model
    parts = adapter.parts()
    head, table = head_name(model), table_name(model)
    found = {name: np.asarray(array, np.float32) for name, array in tensors.items()}
    new_head = adapter.tables.get(HEAD, found[head])
    if HEAD in parts:
        new_head = _summed(adapter, HEAD, new_head, parts.pop(HEAD))
    new_table = adapter.tables.get("embed", found[table])
    for name, one in parts.items():
        found[name] = _summed(adapter, name, found[name], one)
    if model.tied and not np.array_equal(new_head, new_table):
        model, head = replace(model, tied=False), "head"
    found[table], found[head] = new_table, new_head
    return model, {name: frozen(array) for name, array in found.items()}


def _summed(adapter: Adapter, name: str, matrix: Array, one: LowRank) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        found = matrix + one.delta()
    if not np.isfinite(found).all():
        where, got = f"adapter {adapter.origin}".rstrip(), f"{name} times {one.scale:g}"
        raise ConfigError(where, "a sum that fp32 has no room for", got=got)
    return found


def without_models_head(adapter: Adapter, tensors: Mapping[str, Array]) -> Adapter:
    """The adapter, less a head that is the model's own, which says nothing."""
    head = adapter.tables.get(HEAD)
    if head is None or not np.array_equal(head, tensors[head_name(adapter.model)]):
        return adapter
    return replace(adapter, tables={k: t for k, t in adapter.tables.items() if k != HEAD})


def times(name: str, site: str, b: Array, weight: float) -> Array:
    """B times the weight of an adapter, in fp32 until it is stored.

    Raises:
        ConfigError: out of fp16's range, whatever the device: a weight means the same on each.
    """
    if weight == 1:
        return b
    with np.errstate(over="ignore", invalid="ignore"):
        found = b * np.float32(weight)
    if not (np.abs(found) <= HALF_MAX).all():
        raise ConfigError(
            f"adapter {name}",
            f"its weight takes {site} out of fp16's range",
            got=f"{weight:g}",
            want=f"B times it within {HALF_MAX:g}",
        )
    return found


def scaled(adapter: Adapter, weight: float) -> Adapter:
    """The adapter with its matrices times a weight.

    Raises:
        ConfigError: a weight by which nobody could wear it.
    """
    for path, one in adapter.matrices.items():
        times(adapter.name, path, one.b * np.float32(one.scale), weight)
    matrices = {
        path: replace(one, scale=one.scale * weight) for path, one in adapter.matrices.items()
    }
    return replace(adapter, matrices=matrices)


def _saved_name(model: ModelConfig, table: str) -> str:
    if table == HEAD:
        return HEAD
    return "wte" if isinstance(model, GPT2Config) else "embed_tokens"


def _commonest(values: Iterable[float], default: float) -> float:
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return max(counts, key=lambda value: counts[value], default=default)
