"""Wide products of a plan: right for any layout, and each column as if it stood alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from orion_ane.engine import lower
from orion_ane.ir import Graph
from orion_ane.ops import cast, conv1x1, input_, matmul, transpose, weight
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
EXACT = 1e-5  # of the largest: fp32 sums of a few hundred products


def run(graph, feed, weights=None, *, threads=1, numerics="fp32"):
    return lower(graph, weights or {}, numerics=numerics, threads=threads).run(feed)["y"]


def leaf_of(graph):
    return next(node.op for node in graph.nodes if type(node.op).__name__ == "Weight")


def convolution(outer, inner, columns, dtype=FP32):
    x = input_("x", TensorType(FP32, (1, inner, 1, columns)))
    w = weight("w", TensorType(dtype, (outer, inner, 1, 1)))
    return Graph({"x": x}, {"y": conv1x1(x, w if dtype is FP32 else cast(w, FP32))})


SIZES = [(16, 64, 17), (14, 300, 33), (45, 257, 64), (64, 16, 172), (172, 513, 31), (100, 15, 96)]


@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize(("outer", "inner", "columns"), SIZES)
def test_a_weight_times_many_columns_is_their_product(outer, inner, columns, dtype, rng):
    graph = convolution(outer, inner, columns, dtype)
    w = rng.standard_normal((outer, inner, 1, 1)).astype(dtype.numpy)
    x = rng.standard_normal((1, inner, 1, columns), dtype=np.float32)
    got = run(graph, {"x": x}, {leaf_of(graph): w})
    want = w[:, :, 0, 0].astype(np.float64) @ x[0, :, 0].astype(np.float64)
    np.testing.assert_allclose(got[0, :, 0], want, atol=EXACT * np.abs(want).max() * 4)


@pytest.mark.parametrize(("tx", "ty"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(16, 300, 40), (33, 17, 70), (61, 256, 64), (40, 7, 150)]
)
def test_products_of_values_agree_however_they_lie(m, k, n, tx, ty, dtype, rng):
    x_shape, y_shape = (2, 3, k, m) if tx else (2, 3, m, k), (2, 1, n, k) if ty else (2, 1, k, n)
    x, y = input_("x", TensorType(dtype, x_shape)), input_("z", TensorType(dtype, y_shape))
    graph = Graph({"x": x, "z": y}, {"y": cast(matmul(x, y, tx=tx, ty=ty), FP32)})
    a = rng.standard_normal(x_shape).astype(dtype.numpy)
    b = rng.standard_normal(y_shape).astype(dtype.numpy)
    got = run(graph, {"x": a, "z": b}, threads=2)
    a, b = (side.astype(np.float64) for side in (a, b))
    want = np.matmul(a.swapaxes(-1, -2) if tx else a, b.swapaxes(-1, -2) if ty else b)
    np.testing.assert_allclose(got, want, atol=EXACT * np.abs(want).max() * 4)


@pytest.mark.parametrize("numerics", ["fp16", "fp32"])
@pytest.mark.parametrize("inner", [64, 172, 768])
def test_a_column_does_not_depend_on_others_its_place_the_width_or_threads(inner, numerics, rng):
    w = {}
    column = rng.standard_normal((inner, 1), dtype=np.float32)
    matrix = (rng.standard_normal((96, inner, 1, 1)) * 0.1).astype(np.float16)
    results = []
    for columns, threads, at in [
        (32, 1, 0),
        (32, 2, 31),
        (47, 3, 40),
        (256, 2, 100),
        (250, 1, 249),
    ]:
        graph = convolution(96, inner, columns, FP16)
        x = rng.standard_normal((1, inner, 1, columns), dtype=np.float32)
        x[0, :, 0, at : at + 1] = column
        w = {leaf_of(graph): matrix}
        results.append(run(graph, {"x": x}, w, threads=threads, numerics=numerics)[0, :, 0, at])
    for got in results[1:]:
        np.testing.assert_array_equal(got, results[0])


def test_what_is_not_finite_stays_in_its_column_and_row(rng):
    graph = convolution(40, 100, 40)
    w = rng.standard_normal((40, 100, 1, 1), dtype=np.float32)
    x = rng.standard_normal((1, 100, 1, 40), dtype=np.float32)
    w[3, 5], x[0, 7, 0, 39] = np.nan, np.inf
    got = run(graph, {"x": x}, {leaf_of(graph): w})[0, :, 0]
    bad = np.zeros((40, 40), bool)
    bad[3], bad[:, 39] = True, True
    np.testing.assert_array_equal(~np.isfinite(got), bad)


@pytest.mark.parametrize(("columns", "is_laid_out"), [(40, False), (4, True)])
@pytest.mark.parametrize("dtype", [FP16, FP32])
def test_a_weight_that_wide_products_read_turned_is_held_once(columns, is_laid_out, dtype, rng):
    x = input_("x", TensorType(FP32, (1, 70, 1, columns)))
    w = weight("w", TensorType(dtype, (70, 90, 1, 1)))
    turned = transpose(w, (1, 0, 2, 3))
    graph = Graph({"x": x}, {"y": conv1x1(x, turned if dtype is FP32 else cast(turned, FP32))})
    array = rng.standard_normal((70, 90, 1, 1)).astype(dtype.numpy)
    plan = lower(graph, {leaf_of(graph): array}, numerics="fp32", threads=1)
    held = [held for held in plan.constants if held.size == array.size]
    assert all(np.may_share_memory(one, array) for one in held) is not is_laid_out
    for scale in (1, 2):  # and with other weights
        plan = plan.with_weights({leaf_of(graph): array * dtype.numpy.type(scale)})
        feed = {"x": rng.standard_normal((1, 70, 1, columns), dtype=np.float32)}
        want = scale * array[:, :, 0, 0].T.astype(np.float64) @ feed["x"][0, :, 0]
        np.testing.assert_allclose(plan.run(feed)["y"][0, :, 0], want, atol=1e-3)
