"""Hypothesis strategies that everybody uses: types, arrays, typed graphs, and what to feed them.

What a random graph computes is finite in fp16 too, whatever it is fed by `feeds`.
"""

from __future__ import annotations

import numpy as np
from garden import (
    DTYPES,
    FED,
    FLOATS,
    GROWERS,
    LIMIT,
    STEPS,
    Garden,
    shapes,
    shapes_of,
    types,
    values,
)
from hypothesis import strategies as st

import orion_ane.ops as o
from orion_ane.ir import Graph, Node
from orion_ane.types import Array, DType, TensorType

__all__ = [
    "DTYPES",
    "FLOATS",
    "GROWERS",
    "LIMIT",
    "STEPS",
    "arrays",
    "feeds",
    "graphs",
    "shapes",
    "shapes_of",
    "types",
    "values",
    "weight_feeds",
]

INPUT_NAMES = ("x", "hidden", "a1", "mask", "Kv_cache", "z_")
OUTPUT_NAMES = ("y", "logits", "b2")


def arrays(of: TensorType, lo: float = -FED, hi: float = FED):
    """Arrays of the type `of`, every element finite and between `lo` and `hi`."""
    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: values(of, np.random.default_rng(seed), lo, hi))


@st.composite
def feeds(draw, graph: Graph) -> dict[str, Array]:
    """A value for each input of a graph, by name."""
    return {name: draw(arrays(node.type)) for name, node in graph.inputs.items()}


@st.composite
def weight_feeds(draw, graph: Graph) -> dict[str, Array]:
    """A value for each weight of a graph, by label."""
    leaves = [node.op for node in graph.nodes if isinstance(node.op, o.Weight)]
    return {leaf.label: draw(arrays(leaf.of)) for leaf in leaves}


@st.composite
def graphs(
    draw,
    *,
    max_nodes: int = 25,
    dtypes: tuple[DType, ...] = DTYPES,
    rows: frozenset[str] | None = None,
    smooth: bool = False,
    weights: bool = True,
) -> Graph:
    """Well-typed graphs over all rows of the table.

    One to three inputs, one to three outputs that ops make (two may be one node), constants,
    weights, ranks 0 to 5, values used many times.

    Args:
        draw: hypothesis's.
        max_nodes: about how many ops, guards not counted.
        dtypes: element types that may occur; at least one of them a float.
        rows: names of the rows that may occur, beside leaves and guards; None means all.
        smooth: no result jumps where an operand moves a little, so that results of two
            roundings may be compared.
        weights: whether weights may occur.
    """
    garden = Garden(draw, dtypes, smooth=smooth, weights=weights)
    inputs: dict[str, Node] = {}
    for name in draw(st.lists(st.sampled_from(INPUT_NAMES), min_size=1, max_size=3, unique=True)):
        first = tuple(d for d in dtypes if d.is_float) if not inputs else dtypes
        inputs[name] = o.input_(name, draw(types(first)))
        garden.add(inputs[name], -FED, FED)
    names = sorted(GROWERS if rows is None else set(GROWERS) & rows)
    if smooth:
        names = [name for name in names if name not in STEPS]
    made = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=max_nodes)):
        grown = GROWERS[name](garden)
        if grown is not None:
            made.append(garden.add(*grown))
    if not made:
        made.append(garden.add(o.identity(garden.pool[0].node), -FED, FED))
    count = draw(st.integers(1, 3))
    recent = st.sampled_from(made[-5:])  # late nodes reach the most of the graph
    ends = [made[-1], *(draw(recent) for _ in range(count - 1))]
    outputs = dict(zip(draw(st.permutations(OUTPUT_NAMES)), (g.node for g in ends), strict=False))
    return Graph(inputs, outputs)
