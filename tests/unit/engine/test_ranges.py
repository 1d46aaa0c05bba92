"""Ranges: what is measured of each tensor, against a count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mac_rule import units

import orion_ane.ops as o
from orion_ane.ane.numerics import NUMERICS
from orion_ane.compiler import compile as compile_graph
from orion_ane.engine.lower import lower
from orion_ane.engine.ranges import Meter, RangeReport
from orion_ane.errors import BackendError
from orion_ane.ir import Graph, Node
from orion_ane.ops.foreign.conv import Conv, convolution
from orion_ane.ops.foreign.linear import Linear
from orion_ane.runtime import backend
from orion_ane.runtime.ranges import ranges
from orion_ane.types import Array, DType, TensorType

FP16 = DType.FP16


def measured(graph: Graph, feed, weights=(), numerics=NUMERICS["m1"]) -> RangeReport:
    return Meter(graph, dict(weights), numerics=numerics, names={}, threads=1).measure(feed)


def counted(w: Array, x: Array) -> tuple[int, int]:
    """Of w [O,K] and x [K,S]: products of numbers other than 0, and those that vanish."""
    pairs = [
        units(float(a), float(b))
        for k in range(w.shape[1])
        for a in w[:, k]
        for b in x[k]
        if a and b and np.isfinite(a) and np.isfinite(b)
    ]
    return len(pairs), pairs.count(0)


def spread(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers of all magnitudes, some 0 and one infinite."""
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 4, shape)
    found[rng.random(shape) < 0.1] = 0
    found.flat[0] = np.inf
    return found.astype(np.float16)


@given(
    seed=st.integers(0, 2**32 - 1), o_=st.integers(1, 5), k=st.integers(1, 9), s=st.integers(1, 5)
)
@settings(max_examples=20, deadline=None)
def test_lost_products_are_those_that_the_rule_drops(seed, o_, k, s):
    rng = np.random.default_rng(seed)
    w, x = spread(rng, o_, k), spread(rng, k, s)
    want = counted(w, x)
    line = o.input_("line", TensorType(FP16, (1, k, 1, s)))
    flat = o.input_("flat", TensorType(FP16, (s, k)))
    weight = o.weight("w", TensorType(FP16, (o_, k)))
    kernel = o.reshape(weight, (o_, k, 1, 1))
    both = o.concat(flat, flat, axis=0)
    graph = Graph(
        {"line": line, "flat": flat},
        {
            "conv1x1": o.conv1x1(line, kernel),
            "linear": Node(Linear(), (flat, weight, o.const(np.ones(o_), FP16))),
            "matmul": o.matmul(flat, weight, ty=True),
            "turned": o.matmul(weight, flat, ty=True),
            "twice": o.matmul(both, weight, ty=True),
            "conv": convolution(Conv((1, 1), (0, 0, 0, 1), (1, 1)), line, kernel),
        },
    )
    feed = {"line": x.reshape(1, k, 1, s), "flat": np.ascontiguousarray(x.T)}
    found = {r.name: r for r in measured(graph, feed, {weight.op: w}).ranges}
    for name in ("conv1x1", "linear", "matmul", "turned", "conv"):
        assert (found[name].products, found[name].lost) == want, name
    assert (found["twice"].products, found["twice"].lost) == (2 * want[0], 2 * want[1])


def test_groups_and_batches_pair_what_they_multiply(rng):
    x, w = rng.standard_normal((2, 4, 1, 3)).astype(np.float16), np.full((4, 2, 1, 1), 2.0**-8)
    x[:, :2] *= np.float16(2.0**-10)
    node = o.input_("x", TensorType(FP16, x.shape))
    y = convolution(Conv((1, 1), (0, 0, 0, 0), (1, 1), 2), node, o.const(w, FP16))
    heads = o.matmul(o.transpose(node, (0, 2, 1, 3)), o.const(np.full((1, 1, 3, 5), 2.0**-8), FP16))
    found = {r.name: r for r in measured(Graph({"x": node}, {"y": y, "h": heads}), {"x": x}).ranges}
    assert found["y"].products == 2 * 4 * 2 * 3
    assert 0 < found["y"].lost <= found["y"].products // 2
    assert found["h"].products == 2 * 4 * 3 * 5
    assert found["h"].lost * 2 == found["y"].lost * 5


@given(seed=st.integers(0, 2**32 - 1), walk=st.sampled_from([(1, 1), (2, 1), (1, 2)]))
@settings(max_examples=4, deadline=None)
def test_a_kernel_meets_what_is_under_it_and_no_padding(seed, walk):
    rng = np.random.default_rng(seed)
    x, w = spread(rng, 2, 4, 5, 6), spread(rng, 6, 2, 3, 2)
    op = Conv((walk[0], 1), (1, 0, 2, 1), (1, walk[1]), 2)
    node = o.input_("x", TensorType(FP16, x.shape))
    y = convolution(op, node, o.const(w, FP16))
    found = measured(Graph({"x": node}, {"y": y}), {"x": x}).ranges[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1)))
    want = [0, 0]
    for group, i, j, r, c in np.ndindex(2, *y.type.shape[2:], 3, 2):
        under = padded[:, 2 * group : 2 * group + 2, i * walk[0] + r, j + c * walk[1]]
        pairs = counted(w[3 * group : 3 * group + 3, :, r, c], under.T)
        want = [want[0] + pairs[0], want[1] + pairs[1]]
    assert [found.products, found.lost] == want


def test_subnormal_numbers_lose_products_by_their_size_and_what_fp16_cannot_hold_loses_all():
    """127 and 128 steps of 2^-24 by 1 are just below and on half of the grid's step."""
    x = o.input_("x", TensorType(DType.FP32, (1, 4)))
    y = o.matmul(x, o.const(np.ones((4, 1)), DType.FP32))
    feed = {"x": np.array([[127 * 2.0**-24, 2.0**-17, -1e-9, 0]], np.float32)}
    found = measured(Graph({"x": x}, {"y": y}), feed, numerics="fp32").ranges[-1]
    assert (found.products, found.lost) == (3, 2)


@pytest.mark.parametrize("numerics", ["fp16", "fp32", NUMERICS["m5"]])
def test_the_first_bad_op_is_where_values_leave_the_range(numerics):
    x = o.input_("x", TensorType(FP16, (1, 4, 1, 8)))
    big = x * o.const(500, FP16)
    worse = big * big
    graph = Graph({"x": x}, {"fine": big, "bad": worse, "after": worse + big})
    report = measured(graph, {"x": np.ones((1, 4, 1, 8), np.float16)}, numerics=numerics)
    names = [found.name for found in report.ranges]
    assert names[0] == "x"
    assert {"fine", "bad", "after"} <= set(names)
    found = {r.name: r for r in report.ranges}
    assert found["fine"].largest == 500
    if numerics == "fp32":
        assert report.first_bad is None
        assert found["bad"].largest == 250_000
        return
    assert report.first_bad is found["bad"]
    assert report.warning is found["bad"]
    assert (found["bad"].not_finite, found["after"].not_finite) == (32, 32)
    assert not found["after"].is_first


def test_an_input_that_is_not_finite_is_the_first():
    x = o.input_("x", TensorType(FP16, (2,)))
    report = measured(Graph({"x": x}, {"y": o.relu(x)}), {"x": np.array([1, np.nan], np.float16)})
    assert report.first_bad is not None
    assert (report.first_bad.name, report.first_bad.not_finite) == ("x", 1)


def test_a_sum_near_its_ceiling_is_warned_of_and_saturation_counted():
    x = o.input_("x", TensorType(FP16, (1, 1, 1, 4)))
    graph = Graph({"x": x}, {"y": o.conv1x1(x, o.const(np.ones((1, 1, 1, 1)), FP16))})
    feed = np.array([1, -32752, 20000, 0], np.float16).reshape(1, 1, 1, 4)
    report = measured(graph, {"x": feed})
    near = report.warning
    assert near is report.nearest is report.ranges[-1]
    assert (near.largest, near.saturated, near.not_finite) == (32752, 1, 0)
    assert near.room == 32768 / 32752
    assert str(near) == (
        "conv1x1 y fp16[1,1,1,4]: largest 32752, 100% of 32768, where a sum of products is infinite"
    )
    assert measured(graph, {"x": feed / np.float16(4)}).warning is None
    past = measured(graph, {"x": feed + np.float16(16) * np.sign(feed)})
    assert past.warning is past.nearest is past.first_bad is past.ranges[-1]
    assert (past.ranges[-1].room, past.ranges[-1].not_finite) == (0, 1)
    assert str(past.warning) == "conv1x1 y fp16[1,1,1,4]: 1 values not finite, largest 20016"


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_a_loaded_program_shows_ranges_under_the_names_of_its_text(device, rng):
    x = o.input_("x", TensorType(FP16, (1, 64, 1, 32)))
    w = rng.standard_normal((64, 64, 1, 1)).astype(np.float16)
    y = o.conv1x1(x, o.weight("w", TensorType(FP16, w.shape)))
    graph = Graph({"x": x}, {"y": o.relu(y) * o.const(2, FP16)})
    loaded = backend(device, threads=1).compile(compile_graph(graph, {"w": w}, target="strict"))
    feed = {"x": rng.standard_normal((1, 64, 1, 32)).astype(np.float16)}
    first, again = ranges(loaded, feed), ranges(loaded, feed)
    assert [r.op for r in first.ranges] == ["input", "conv1x1", "relu", "mul"]
    assert all(r.name in loaded.program.text for r in first.ranges)
    largest = np.abs(loaded.run(feed)["y"].astype(np.float64)).max()
    assert first.ranges[-1].largest == pytest.approx(largest, rel=2**-10)  # the port is fp16
    assert first == again
    both = first.merged(again)
    assert both.ranges[1].products == 2 * 64 * 64 * 32
    loaded.reload({path: bytes(data) for path, data in loaded.program.weights.items()})
    assert ranges(loaded, feed) == first
    loaded.close()
    with pytest.raises(BackendError, match="is closed"):
        ranges(loaded, feed)


def test_a_device_that_shows_nothing_inside_says_so():
    class Sealed:
        program = None

    with pytest.raises(BackendError, match="ranges: the device does not show them"):
        ranges(Sealed(), {})


def test_what_is_measured_is_what_runs(rng):
    x = o.input_("x", TensorType(FP16, (1, 48, 1, 20)))
    w = o.weight("w", TensorType(FP16, (30, 48, 1, 1)))
    y = o.softmax(o.conv1x1(x, w), 1)
    graph, feed = (
        Graph({"x": x}, {"y": y}),
        {"x": rng.standard_normal(x.type.shape).astype(np.float16)},
    )
    weights = {w.op: rng.standard_normal(w.type.shape).astype(np.float16)}
    for numerics in ("fp16", NUMERICS["m1"]):
        ran = lower(graph, weights, numerics=numerics, threads=1).run(feed)["y"]
        found = measured(graph, feed, weights, numerics).ranges[-1]
        assert found.largest == np.abs(ran.astype(np.float64)).max()
