"""conv1x1 and matmul in every way they are computed, by a plan and op by op, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from orion_ane.engine.lower import lower, lowering
from orion_ane.engine.plan.layout import THIN_COLUMNS
from orion_ane.engine.plan.plan import plan
from orion_ane.engine.threads import Threads
from orion_ane.ir import Graph
from orion_ane.ops import cast, conv1x1, input_, matmul, weight
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
SUM_ROUNDING = 2.0**-21
"""fp32 sums of up to some hundred products: a few units in the last place of their magnitudes."""

O, I = 261, 260
LARGE = 1054
"""Sizes that are no multiple of what a tile or a thread takes at once; a side of four of those."""
WAYS = ["plan", "tape"]


def conv(batch: int, columns: int, stored: DType, outer: int = O, inner: int = I) -> Graph:
    x = input_("x", TensorType(FP32, (batch, inner, 1, columns)))
    w = weight("w", TensorType(stored, (outer, inner, 1, 1)))
    return Graph({"x": x}, {"y": conv1x1(x, w if stored is FP32 else cast(w, FP32))})


def made(graph: Graph, weights: dict, way: str, threads: int | None = None) -> Any:
    """What runs a graph; programs with an op that has no command are run by the tape."""
    if way == "tape":
        return lowering(graph, weights, "fp32", Threads(threads)).tape()
    return lower(graph, weights, numerics="fp32", threads=threads)


def run(
    graph: Graph, w: np.ndarray, x: np.ndarray, way: str = "plan", threads: int | None = None
) -> np.ndarray:
    leaf = next(node.op for node in graph.nodes if node.op.name == "weight")
    return made(graph, {leaf: w}, way, threads).run({"x": x})["y"]


def operands(graph: Graph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    leaf = next(node for node in graph.nodes if node.op.name == "weight")
    w = rng.standard_normal(leaf.type.shape).astype(leaf.type.dtype.numpy)
    x = rng.standard_normal(graph.inputs["x"].type.shape).astype(np.float32)
    return w, x


def assert_is_the_product(y: np.ndarray, w: np.ndarray, x: np.ndarray) -> None:
    exact = np.einsum("oi,nihs->nohs", w[:, :, 0, 0].astype(np.float64), x.astype(np.float64))
    magnitude = np.einsum("oi,nihs->nohs", abs(w[:, :, 0, 0]).astype(np.float64), abs(x))
    assert np.all(abs(y - exact) <= SUM_ROUNDING * magnitude)


@pytest.mark.parametrize("stored", [FP16, FP32], ids=str)
@pytest.mark.parametrize("columns", [1, 2, 7, THIN_COLUMNS, THIN_COLUMNS + 1, 70])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_convolution_is_the_product(batch, columns, stored, rng):
    graph = conv(batch, columns, stored)
    w, x = operands(graph, rng)
    y = run(graph, w, x)
    assert_is_the_product(y, w, x)
    np.testing.assert_array_equal(run(graph, w, x, "tape"), y)


@pytest.mark.parametrize("stored", [FP16, FP32], ids=str)
@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (5, 3), (1, 70001), (70000, 1)])
def test_a_convolution_is_the_product_for_odd_shapes(outer, inner, stored, rng):
    graph = conv(1, 2, stored, outer, inner)
    w, x = operands(graph, rng)
    y = run(graph, w, x)
    assert_is_the_product(y, w, x)
    np.testing.assert_array_equal(run(graph, w, x, "tape"), y)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stored", [FP16, FP32], ids=str)
@pytest.mark.parametrize("columns", [1, 5, 40])
def test_the_number_of_threads_does_not_show(columns, stored, way, rng):
    graph = conv(1, columns, stored, outer=LARGE)
    w, x = operands(graph, rng)
    alone = run(graph, w, x, way, threads=1)
    for threads in (2, 3, 64):
        np.testing.assert_array_equal(run(graph, w, x, way, threads=threads), alone)


def test_a_sum_of_infinities_and_nan_is_what_ieee_says(rng):
    graph = conv(1, 1, FP16)
    w, x = operands(graph, rng)
    w[:4] = 1
    x[0, :3, 0, 0] = [np.inf, 1, 1]
    assert np.all(run(graph, w, x)[0, :4] == np.inf)
    x[0, 3] = -np.inf
    assert np.all(np.isnan(run(graph, w, x)[0, :4]))


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_an_fp16_weight_is_never_widened_as_a_whole(columns, rng):
    graph = conv(1, columns, FP16, outer=LARGE)
    w, _ = operands(graph, rng)
    leaf = next(node.op for node in graph.nodes if node.op.name == "weight")
    code = plan(graph, {leaf: w}, rounds=False, threads=Threads(2)).code
    assert code.arena + 2 * code.scratch < w.size * 4


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("columns", [1, 5, 40])
@pytest.mark.parametrize("stored", [FP16, FP32], ids=str)
def test_a_large_weight_is_read_where_it_lies(columns, stored, way, rng):
    graph = conv(1, columns, stored)
    w, x = operands(graph, rng)
    leaf = next(node.op for node in graph.nodes if node.op.name == "weight")
    lowered = made(graph, {leaf: w}, way)
    first = lowered.run({"x": x})["y"]
    w *= 2
    np.testing.assert_array_equal(lowered.run({"x": x})["y"], 2 * first)


SHAPES = [  # x, y before any transposition
    ((1, 5), (5, 3)),
    ((2, 3, 1, 5), (1, 3, 5, 7)),  # grouped query heads on key heads
    ((1, 3, 4, 5), (2, 3, 5, 1)),  # and the other way round, as values meet scores
    ((2, 3, 4, 5), (2, 1, 5, 6)),
    ((4, 2, 3, 1, 5), (5, 6)),
    ((3, 5), (4, 2, 5, 2)),
    ((2, 1, 4, 5), (1, 3, 5, 2)),
    ((6, 64, 80), (6, 80, 96)),  # large enough to be dealt out, by batch
    ((300, 80), (80, 120)),  # by rows
    ((3, 80), (80, 9001)),  # by columns
    ((2, 3, 70, 80), (1, 3, 80, 90)),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("tx", [False, True])
@pytest.mark.parametrize("ty", [False, True])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_matmul_is_the_product(shapes, tx, ty, threads, rng):
    x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    exact = np.matmul(x.astype(np.float64), y.astype(np.float64))
    magnitude = np.matmul(abs(x), abs(y))
    feed = {
        "x": np.ascontiguousarray(x.swapaxes(-1, -2)) if tx else x,
        "y": np.ascontiguousarray(y.swapaxes(-1, -2)) if ty else y,
    }
    a, b = (input_(name, TensorType.of(value)) for name, value in feed.items())
    graph = Graph({"x": a, "y": b}, {"z": matmul(a, b, tx=tx, ty=ty)})
    z = made(graph, {}, "plan", threads).run(feed)["z"]
    np.testing.assert_array_equal(made(graph, {}, "tape", threads).run(feed)["z"], z)
    assert z.shape == exact.shape
    assert np.all(abs(z - exact) <= SUM_ROUNDING * magnitude)


@pytest.mark.parametrize("way", WAYS)
def test_a_matmul_of_integers_is_exact(way, rng):
    x, y = (rng.integers(-99, 99, shape).astype(np.int32) for shape in [(2, 1, 3, 4), (5, 4, 6)])
    a, b = (input_(name, TensorType.of(value)) for name, value in (("x", x), ("y", y)))
    z = made(Graph({"x": a, "y": b}, {"z": matmul(a, b)}), {}, way).run({"x": x, "y": y})["z"]
    np.testing.assert_array_equal(z, np.matmul(x, y))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("columns", [1, 9, 300])
def test_a_weight_may_be_an_input(columns, way, rng):
    x = input_("x", TensorType(FP16, (2, 90, 1, columns)))
    w = input_("w", TensorType(FP16, (110, 90, 1, 1)))
    feed = {
        "x": rng.standard_normal(x.type.shape).astype(np.float16),
        "w": rng.standard_normal(w.type.shape).astype(np.float16),
    }
    graph = Graph({"x": x, "w": w}, {"y": cast(conv1x1(x, w), FP32)})
    y = made(graph, {}, way).run(feed)["y"]
    assert_is_the_product(y, feed["w"], feed["x"].astype(np.float32))
