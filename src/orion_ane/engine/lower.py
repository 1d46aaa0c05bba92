"""Graph to what runs it, by the numerics that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from orion_ane.ane.numerics import Numerics as Rules
from orion_ane.engine.known import Known
from orion_ane.engine.lowering import Lowering
from orion_ane.engine.tape import Tape
from orion_ane.engine.threads import Threads
from orion_ane.ir.graph import Graph
from orion_ane.ops.leaf import Weight
from orion_ane.types import Array

Numerics: TypeAlias = Literal["fp16", "fp32"] | Rules


def lower(
    graph: Graph,
    weights: Mapping[Weight, Array],
    *,
    numerics: Numerics,
    threads: int | None = None,
) -> Tape:
    """A tape that computes the graph's outputs with these weights, which it reads in place.

    Args:
        graph: what to compute.
        weights: an array for each weight leaf, of its type.
        numerics: `fp16` rounds each result to its declared type, once, after computing in fp32;
            `fp32` keeps what is declared fp16 in fp32, and rounds at output ports alone; a chip's
            rules compute what is declared fp16 as that chip does.
        threads: how many threads at most; by default one a processor.  It does not show in the
            results.

    Raises:
        ShapeError: a weight has no array, or one of another type.
        ConfigError: no such number of threads.
    """
    return lowering(graph, weights, numerics, Threads(threads)).tape()


def lowering(
    graph: Graph, weights: Mapping[Weight, Array], numerics: Numerics, threads: Threads
) -> Lowering:
    """What chooses the functions of a graph's tape; see `lower`."""
    if isinstance(numerics, Rules):
        from orion_ane.engine.exact.lower import ExactLowering

        return ExactLowering(graph, weights, numerics, threads)
    return Lowering(graph, Known(weights, rounds=numerics == "fp16"), threads)
