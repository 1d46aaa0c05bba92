"""Graph to what runs it, by the numerics that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from orion_ane.ane.numerics import Numerics as Rules
from orion_ane.engine.brain import BrainLowering, has_wide_products
from orion_ane.engine.known import Known
from orion_ane.engine.lowering import Lowering
from orion_ane.engine.tape import Tape
from orion_ane.engine.threads import Threads
from orion_ane.ir.graph import Graph
from orion_ane.ops.leaf import Leaf, Weight
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.types import Array

if TYPE_CHECKING:  # it imports numba
    from orion_ane.engine.plan.plan import Plan

Lowered: TypeAlias = "Tape | Plan"
"""What runs a graph."""

Numerics: TypeAlias = Literal["fp16", "fp32", "bf16"] | Rules

SMALL = 1 << 16  # elements computed by all ops together


def lower(
    graph: Graph,
    weights: Mapping[Weight, Array],
    *,
    numerics: Numerics,
    threads: int | None = None,
) -> Lowered:
    """What computes the graph's outputs with these weights, which it reads in place.

    A plan, if each op has a command and there is a product or much to compute; else a tape.

    Args:
        graph: what to compute.
        weights: an array for each weight leaf, of its type.
        numerics: `fp16` rounds each result to its declared type, once, after computing in fp32;
            `fp32` keeps what is declared fp16 in fp32, and rounds at output ports alone; a chip's
            rules compute what is declared fp16 as that chip does.  `bf16` is `fp32` but for wide
            products with stored weights, which torch computes in bf16, and whose last bits may
            depend on the number of threads.
        threads: how many threads at most; by default one a processor.  It does not show in the
            results.

    Raises:
        ShapeError: a weight has no array, or one of another type.
        ConfigError: no such number of threads.
    """
    held = Threads(threads)
    if numerics == "bf16":
        numerics = "bf16" if has_wide_products(graph) else "fp32"
    if numerics in ("fp16", "fp32") and _is_worth_planning(graph):
        from orion_ane.engine.plan.build import NoCommand
        from orion_ane.engine.plan.plan import plan

        with suppress(NoCommand):
            return plan(graph, weights, rounds=numerics == "fp16", threads=held)
    return lowering(graph, weights, numerics, held).tape()


def lowering(
    graph: Graph, weights: Mapping[Weight, Array], numerics: Numerics, threads: Threads
) -> Lowering:
    """What chooses the functions of a graph's tape; see `lower`."""
    if isinstance(numerics, Rules):
        from orion_ane.engine.exact.lower import ExactLowering

        return ExactLowering(graph, weights, numerics, threads)
    if numerics == "bf16":
        return BrainLowering(graph, Known(weights, rounds=False), threads)
    return Lowering(graph, Known(weights, rounds=numerics == "fp16"), threads)


def _is_worth_planning(graph: Graph) -> bool:
    """Whether to load the kernels, which takes longer than a few small ops in numpy."""
    computed = sum(node.type.elements for node in graph.nodes if not isinstance(node.op, Leaf))
    return computed > SMALL or any(isinstance(node.op, Conv1x1 | Matmul) for node in graph.nodes)
