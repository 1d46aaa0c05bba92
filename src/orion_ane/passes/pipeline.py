"""Passes by name, and in which order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from orion_ane.errors import ConfigError, OrionError
from orion_ane.ir import Graph
from orion_ane.passes.casts import casts
from orion_ane.passes.cse import cse
from orion_ane.passes.dce import dce
from orion_ane.passes.fold import fold
from orion_ane.passes.identities import identities
from orion_ane.passes.masks import masks

Pass: TypeAlias = Callable[[Graph], Graph]
"""A graph of the same meaning, or the very same object where there is nothing to do."""

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "casts": casts,
        "cse": cse,
        "dce": dce,
        "fold": fold,
        "identities": identities,
        "masks": masks,
    }
)
DEFAULT = ("dce", "identities", "masks", "fold", "casts", "cse")
MAX_ROUNDS = 50
"""Passes that still change something after so many rounds undo each other."""


def apply(graph: Graph, pipeline: Iterable[str]) -> Graph:
    """The graph after each pass once, in order.

    Raises:
        ConfigError: there is no such pass.
    """
    for name in pipeline:
        if name not in PASSES:
            raise ConfigError("pipeline", "no such pass", got=name, want=", ".join(PASSES))
        graph = PASSES[name](graph)
    return graph


def settle(graph: Graph, pipeline: Iterable[str] = DEFAULT) -> Graph:
    """The graph after rounds of the pipeline, until a whole round changes nothing.

    Raises:
        ConfigError: there is no such pass.
        OrionError: the passes undo each other without end.
    """
    names = tuple(pipeline)
    for _ in range(MAX_ROUNDS):
        after = apply(graph, names)
        if after is graph:
            return graph
        graph = after
    raise OrionError("pipeline", "does not settle", got=names, want=f"{MAX_ROUNDS} rounds at most")
