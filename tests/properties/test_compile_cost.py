"""What a compile costs grows with the graph, and no faster."""

from __future__ import annotations

import numpy as np
import pytest
from calls import calls_of

from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.ops import const, conv1x1, input_, reduce_sum, weight
from orion_ane.types import DType, TensorType

OF = TensorType(DType.FP16, (1, 8, 1, 32))
SLACK = 1.3
"""Caches that fill, and logarithms."""


def chain(blocks: int) -> Graph:
    """Deep: each block needs the one before, the first, and a constant."""
    first = x = input_("x", OF)
    for _ in range(blocks):
        x = (x + first) * const(0.5, DType.FP16)
        x = x + reduce_sum(x, (1,))
    return Graph({"x": first}, {"y": x})


def fan(blocks: int) -> Graph:
    """Wide: each block reads the same value, and all are summed."""
    x = input_("x", OF)
    parts = [x * const(float(i % 97), DType.FP16) for i in range(blocks * 2)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [a + b for a, b in pairs] + parts[len(parts) // 2 * 2 :]
    return Graph({"x": x}, {"y": parts[0]})


def ends(blocks: int) -> Graph:
    """Many outputs."""
    x = input_("x", OF)
    return Graph({"x": x}, {f"y{i}": x + const(i / 64, DType.FP16) for i in range(blocks)})


@pytest.mark.parametrize("target", [None, "strict"])
@pytest.mark.parametrize("build", [chain, fan, ends])
def test_ten_times_the_graph_costs_no_more_than_ten_times_the_work(build, target):
    def calls(blocks: int) -> int:
        graph = build(blocks)
        return calls_of(lambda: compile_graph(graph, target=target))

    calls(5)
    assert calls(300) < 10 * SLACK * calls(30)


def test_a_deep_graph_compiles_whatever_pythons_stack():
    assert compile_graph(chain(1500)).text.count("reduce_sum(") == 1500


def test_weights_are_found_among_many():
    x = input_("x", OF)
    of = TensorType(DType.FP16, (8, 8, 1, 1))
    y, arrays = x, {}
    for i in range(300):
        y = conv1x1(y, weight(f"w{i}", of))
        arrays[f"w{i}"] = np.full(of.shape, i / 64, np.float16)
    assert compile_graph(Graph({"x": x}, {"y": y}), arrays).text.count("BLOBFILE") == 300
