"""What makes a graph fit a target, each where one of the target's limits demands it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from orion_ane.ane.targets import Target
from orion_ane.errors import ConfigError, OrionError
from orion_ane.ir import Graph
from orion_ane.passes.legal.attention import attention
from orion_ane.passes.legal.concats import concats
from orion_ane.passes.legal.constants import constants
from orion_ane.passes.legal.convolutions import convolutions
from orion_ane.passes.legal.curves import curves
from orion_ane.passes.legal.fp32_ports import fp32_ports
from orion_ane.passes.legal.gelu import gelu
from orion_ane.passes.legal.layer_norm import layer_norm
from orion_ane.passes.legal.linear import linear
from orion_ane.passes.legal.ordered_ports import ordered_ports
from orion_ane.passes.legal.overflow import overflow
from orion_ane.passes.legal.ranks import ranks
from orion_ane.passes.legal.roots import roots
from orion_ane.passes.legal.scalars import scalars
from orion_ane.passes.legal.slices import slices
from orion_ane.passes.legal.uniform_ports import uniform_ports
from orion_ane.passes.legal.whole_rows import whole_rows
from orion_ane.passes.legal.wide_axes import wide_axes
from orion_ane.passes.pipeline import MAX_ROUNDS, PASSES

Legaliser: TypeAlias = Callable[[Graph, Target], Graph]
"""A graph of the same meaning, or the very same object where no limit of the target demands one.

A port may grow, or become fp16: its value stays in the first corner, and the rest is zero.
"""

LEGAL: Mapping[str, Legaliser] = MappingProxyType(
    {
        "constants": constants,
        "attention": attention,
        "layer_norm": layer_norm,
        "gelu": gelu,
        "curves": curves,
        "linear": linear,
        "convolutions": convolutions,
        "ranks": ranks,
        "overflow": overflow,
        "roots": roots,
        "concats": concats,
        "scalars": scalars,
        "wide_axes": wide_axes,
        "slices": slices,
        "fp32_ports": fp32_ports,
        "whole_rows": whole_rows,
        "uniform_ports": uniform_ports,
        "ordered_ports": ordered_ports,
    }
)
"""The legalisers by name, in the order in which they run."""


def legalise(graph: Graph, target: Target, names: Iterable[str] = LEGAL) -> Graph:
    """The graph after rounds of the legalisers, until a whole round changes nothing.

    Raises:
        OrionError: they undo each other without end.
    """
    wanted = tuple(names)
    for _ in range(MAX_ROUNDS):
        settled = True
        for name in wanted:
            after = LEGAL[name](graph, target)
            settled &= after is graph or name == "ordered_ports"  # an order makes nothing else fire
            graph = after
        if settled:
            return graph
    raise OrionError("legalise", "does not settle", got=wanted, want=f"{MAX_ROUNDS} rounds at most")


def transform(graph: Graph, names: Iterable[str], target: Target | None = None) -> Graph:
    """The graph after each of these passes and legalisers once, in order.

    Raises:
        ConfigError: there is no such pass, or one is a legaliser and no target is given.
    """
    for name in names:
        if name in PASSES:
            graph = PASSES[name](graph)
        elif name not in LEGAL:
            known = ", ".join([*PASSES, *LEGAL])
            raise ConfigError("passes", "no such pass", got=name, want=known)
        elif target is None:
            raise ConfigError("passes", f"{name} fits a graph to a target", want="a target")
        else:
            graph = LEGAL[name](graph, target)
    return graph
