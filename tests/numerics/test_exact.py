"""A chip's rules, op by op and through the whole path: special values, laws of position, rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mac_rule import slow
from ops.samples import SAMPLES, Sample
from strategies import feeds, graphs, weight_feeds

import orion_ane.ops as o
from orion_ane.ane import rounding
from orion_ane.ane.activation import TABLES
from orion_ane.ane.numerics import NUMERICS
from orion_ane.ane.targets import TARGETS
from orion_ane.compiler import compile as compile_graph
from orion_ane.engine import lower
from orion_ane.errors import ConfigError
from orion_ane.ir import Graph, Node
from orion_ane.mil.parse import parse_graph
from orion_ane.mil.program import Port, Program
from orion_ane.ops.foreign.conv import Conv, convolution
from orion_ane.ops.foreign.linear import Linear
from orion_ane.runtime import backend
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.types import Array, DType, TensorType

HALF = DType.FP16
INF, NAN = float("inf"), float("nan")
FP16 = [s.of(HALF) for s in SAMPLES if s.op.name not in ("input", "const", "weight")]
FP16 = [s for s in FP16 if any(of.dtype is HALF for of in s.types)]


def device(of: str = "m1", **options) -> Emulator:
    """A target's numbers without its limits."""
    target = replace(TARGETS[of], name="numbers", limits=frozenset())
    return Emulator(target=target, threads=1, **options)


def run_text(text: str, feed: dict[str, Array], on: Emulator) -> dict[str, Array]:
    """What a short text makes of inputs."""
    graph = parse_graph(text)
    ports = (
        tuple(Port(name, name, node.type) for name, node in side.items())
        for side in (graph.inputs, graph.outputs)
    )
    return on.compile(Program(text, {}, *ports)).run(feed)


def one_op(op: str, x: list[float], y: list[float] | None = None, **on: str) -> list[float]:
    """What an op makes of numbers, on M1 unless said."""
    n = len(x)
    second = "" if y is None else f", tensor<fp16, [{n}]> y"
    call = op if "(" in op else f"{op}(x=x)" if y is None else f"{op}(x=x, y=y)"
    of = f"tensor<fp16, [{n}]>"
    text = f"func main<ios18>({of} x{second}) {{ {of} r = {call}; }} -> (r);"
    feed = {"x": np.array(x, np.float16)} | ({} if y is None else {"y": np.array(y, np.float16)})
    return run_text(text, feed, device(**on))["r"].tolist()


def test_nan_counts_as_infinity_and_none_comes_out():
    assert one_op("relu", [NAN, 1]) == [INF, 1]
    assert one_op("exp", [NAN]) == [INF]
    assert one_op("maximum", [NAN, -NAN], [1, 2]) == [INF, INF]
    assert one_op("identity", [NAN]) == [INF]
    for curve in ("erf", "sigmoid", "tanh"):
        assert one_op(curve, [NAN, INF]) == [1, 1]
    assert one_op("softmax(x=x, axis=0)", [1, NAN, 5]) == [0, 1, 0]


def test_what_is_indeterminate_is_zero():
    assert one_op("add", [INF], [-INF]) == [0]
    assert one_op("sub", [NAN], [INF]) == [0]
    assert one_op("mul", [0, -INF], [INF, 0]) == [0, 0]
    assert one_op("real_div", [0, INF], [0, INF]) == [0, 0]
    assert one_op("sqrt", [-1]) == one_op("rsqrt(x=x, epsilon=0.0)", [-1]) == [0]
    assert one_op("log(x=x, epsilon=0.0)", [-1]) == [0]


def test_infinities_and_zeros_give_what_is_reported():
    assert one_op("log(x=x, epsilon=0.0)", [0, INF]) == [-45440, 0]
    assert one_op("softplus", [INF, 11.1]) == [0, 0]
    assert one_op("softsign", [INF]) == one_op("cos", [INF]) == [0]
    assert one_op("real_div", [1, -1], [-0.0, -0.0]) == [INF, -INF]
    assert one_op("rsqrt(x=x, epsilon=0.0)", [-0.0]) == [INF]
    assert not np.signbit(one_op("add", [-0.0], [0.0])[0])
    assert one_op("softmax(x=x, axis=0)", [1000, 1, 2, 3]) == [1, 0, 0, 0]
    assert one_op("exp", [11.0859375, 11.09375])[0] < INF == one_op("exp", [11.09375])[0]


def test_ties_go_away_from_zero():
    assert one_op("add", [2048, -2048], [1, -1]) == [2050, -2050]
    assert one_op("mul", [1027, 2049], [3, 1]) == [3082, 2048]  # 2049 is 2048 by the host's fp16
    assert one_op("round", [0.5, -2.5, 1.4]) == [1, -3, 1]
    assert one_op("round", [1024, -2047, 2048]) == [1025, -2048, 2048]
    assert one_op("add", [65504], [16]) == [INF]


@pytest.mark.parametrize("size", [1, 300])
def test_what_is_computed_in_fp32_is_rounded_away_too(size):
    """A sum, a mean and a cast, at normal and at subnormal ties."""
    x = o.input_("x", TensorType(HALF, (size, 2)))
    wide = o.input_("wide", TensorType(DType.FP32, (size, 4)))
    outputs = {
        "sum": o.reduce_sum(x, (1,)),
        "mean": o.reduce_mean(x, (1,)),
        "cast": o.cast(wide, HALF),
    }
    feed = {
        "x": np.tile(np.array([[2048, 1]], np.float16), (size, 1)),
        "wide": np.tile(np.array([[2049, -2051, 1.5 * 2**-24, 65520]], np.float32), (size, 1)),
    }
    graph = Graph({"x": x, "wide": wide}, outputs)
    got = lower(graph, {}, numerics=NUMERICS["m1"], threads=1).run(feed)
    assert (got["sum"] == 2050).all()
    assert (got["mean"] == 1025).all()
    assert (got["cast"] == np.array([2050, -2052, 2.0**-23, INF], np.float16)).all()


def test_a_sum_and_a_mean_are_rounded_once():
    """Just below a tie: in fp32 each would be on it."""
    x = o.input_("x", TensorType(HALF, (2, 4)))
    outputs = {"sum": o.reduce_sum(x, (1,)), "mean": o.reduce_mean(x, (1,))}
    feed = {"x": np.array([[2048, 1, -(2.0**-24), 0], [-2048, -1, 2.0**-24, 0]], np.float16)}
    got = lower(Graph({"x": x}, outputs), {}, numerics=NUMERICS["m1"], threads=1).run(feed)
    assert got["sum"].ravel().tolist() == [2048, -2048]
    assert got["mean"].ravel().tolist() == [512, -512]


def test_a_square_is_a_product_with_itself(rng):
    x = rng.integers(0, 1 << 16, 3000, np.uint16).view(np.float16)
    want = rounding.multiply(x, x)
    np.testing.assert_array_equal(one_op("square", x.tolist()), want)
    np.testing.assert_array_equal(one_op("mul", x.tolist(), x.tolist()), want)


@pytest.mark.parametrize(("rule", "want"), [("kept", 2.0**-20), ("flushed", 0)])
def test_small_numbers_are_kept_or_not_as_the_switch_says(rule, want):
    target = replace(TARGETS["m1"], limits=frozenset(), switches=(("subnormals", rule),))
    x = np.array([2.0**-20], np.float16)
    text = "func main<ios18>(tensor<fp16, [1]> x) { tensor<fp16, [1]> r = add(x=x, y=fp16(0.0));"
    text += " tensor<fp16, [1]> s = sqrt(x=x); } -> (r, s);"
    found = run_text(text, {"x": x}, Emulator(target=target, threads=1))
    assert found["r"].tolist() == [want]
    assert bool(found["s"][0]) is bool(want)


@pytest.mark.parametrize(("chip", "wide"), [("m1", INF), ("m2", INF), ("m3", 4096), ("m5", 4096)])
def test_a_slice_behind_the_start_of_the_last_axis_is_narrow_on_some_chips(chip, wide):
    text = """func main<ios18>(tensor<fp16, [1,4]> x) {
        tensor<fp16, [1,2]> a = slice_by_index(x=x, begin=[0,0], end=[1,2]);
        tensor<fp16, [1,2]> b = slice_by_index(x=x, begin=[0,1], end=[1,3]);
    } -> (a, b);"""
    x = np.array([[4096, -4096, 4094, 1]], np.float16)
    found = run_text(text, {"x": x}, device(chip))
    assert found["a"].tolist() == [[4096, -4096]]
    assert found["b"].tolist() == [[-wide, 4094]]


@pytest.mark.parametrize("name", TABLES)
def test_activations_are_their_tables(name):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    call = 'gelu(x=x, mode="EXACT")' if name == "gelu" else name
    got = np.array(one_op(call, x.tolist()), np.float16)
    np.testing.assert_array_equal(got, TABLES[name].by_bits)


@pytest.mark.parametrize("rule", ["final", "sticky"])
def test_each_product_is_the_rule_s(rule, rng):
    """conv1x1, linear, matmul and a convolution, with sums that pass 2^15 on the way."""
    w, x = (rng.integers(-120, 120, (5, 9)).astype(np.float16) for _ in range(2))
    want = slow(w, x.T.copy(), rule)  # [O,S]
    rules = NUMERICS["m1"].switched(overflow=rule)
    line = o.input_("x", TensorType(HALF, (1, 9, 1, 5)))
    rows = o.input_("rows", TensorType(HALF, (5, 9)))
    kernel = o.weight("k", TensorType(HALF, (5, 9, 1, 1)))
    flat = o.weight("w", TensorType(HALF, (5, 9)))
    bias = o.const(np.zeros(5), HALF)
    graph = Graph(
        {"x": line, "rows": rows},
        {
            "conv1x1": o.conv1x1(line, kernel),
            "linear": Node(Linear(), (rows, flat, bias)),
            "matmul": o.matmul(rows, flat, ty=True),
            "computed": o.matmul(o.identity(flat), rows, ty=True),
            "conv": convolution(Conv((2, 1), (0, 0, 0, 0), (1, 1)), line, kernel),
        },
    )
    weights = {kernel.op: w.reshape(5, 9, 1, 1), flat.op: w}
    feed = {"x": x.T.reshape(1, 9, 1, 5).copy(), "rows": x}
    got = lower(graph, weights, numerics=rules, threads=1).run(feed)
    for name in ("conv1x1", "conv"):
        np.testing.assert_array_equal(got[name][0, :, 0], want)
    for name in ("linear", "matmul"):
        np.testing.assert_array_equal(got[name].T, want)
    np.testing.assert_array_equal(got["computed"], want)


@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_a_bias_is_added_before_the_one_rounding(chip):
    """2048 + 1 is a tie that the bias decides; rounded twice it would be 2051."""
    x = o.input_("x", TensorType(HALF, (1, 1, 3, 3)))
    w = np.zeros((1, 1, 3, 3))
    w[0, 0, 1] = [0, 1, 1]
    operands = (x, o.const(w, HALF), o.const([-0.5], HALF))
    y = convolution(Conv((1, 1), (1, 1, 1, 1), (1, 1), has_bias=True), *operands)
    flat = o.reshape(x, (1, 9))
    bias = o.const([-0.5], HALF)
    z = Node(Linear(), (flat, o.const(np.ones((1, 9)), HALF), bias))
    feed = np.zeros((1, 1, 3, 3), np.float16)
    feed[0, 0, 1] = [0, 2048, 1]
    got = lower(Graph({"x": x}, {"y": y, "z": z}), {}, numerics=NUMERICS[chip]).run({"x": feed})
    assert (got["y"][0, 0, 1, 1], got["z"][0, 0]) == (2048, 2048)


def of_every_kind(s: int, n: int = 1) -> tuple[Graph, TensorType]:
    """Products, curves, a softmax and a norm over the columns of [n,48,1,s]."""
    of = TensorType(HALF, (n, 48, 1, s))
    x = o.input_("x", of)
    y = o.conv1x1(x, o.weight("w", TensorType(HALF, (64, 48, 1, 1))))
    y = o.softmax(y * o.sigmoid(y), 1) * o.const(50, HALF)
    y = y * o.rsqrt(o.reduce_mean(y * y, (1,)), 1e-5)
    return Graph({"x": x}, {"y": o.exp(y) - o.tanh(y)}), of


@given(seed=st.integers(0, 2**32 - 1), s=st.integers(1, 80), n=st.integers(1, 3), at=st.data())
@settings(max_examples=25, deadline=None)
def test_neither_other_columns_nor_batch_position_nor_threads_show(seed, s, n, at):
    rng = np.random.default_rng(seed)
    w = {"w": rng.standard_normal((64, 48, 1, 1)).astype(np.float16)}

    def found(x: Array, threads: int) -> Array:
        graph, _ = of_every_kind(x.shape[3], x.shape[0])
        weights = {node.op: w["w"] for node in graph.nodes if node.op.name == "weight"}
        tape = lower(graph, weights, numerics=NUMERICS["m1"], threads=threads)
        return tape.run({"x": x})["y"]

    x = rng.standard_normal((n, 48, 1, s)).astype(np.float16)
    whole = found(x, 1)
    np.testing.assert_array_equal(found(x, 2), whole)
    i, j = at.draw(st.integers(0, n - 1)), at.draw(st.integers(0, s - 1))
    alone = found(x[i : i + 1, ..., j : j + 1].copy(), 1)
    np.testing.assert_array_equal(alone[0, ..., 0], whole[i, ..., j])


def test_masked_lanes_do_not_show_in_attention(rng):
    """Between buckets: the same keys among more that are masked give the same bits."""
    q, k, v = (rng.standard_normal((1, 2, 20, 8)).astype(np.float16) for _ in range(3))

    def found(room: int) -> Array:
        of = [TensorType(HALF, (1, 2, n, 8)) for n in (20, room, room)]
        nodes = [o.input_(name, t) for name, t in zip("qkv", of, strict=True)]
        mask = np.where(np.arange(room) < 20, 0, -30000).reshape(1, 1, 1, room)
        p = o.softmax(o.matmul(nodes[0], nodes[1], ty=True) + o.const(mask, HALF), -1)
        graph = Graph(dict(zip("qkv", nodes, strict=True)), {"y": o.matmul(p, nodes[2])})
        wide = [np.concatenate([t, np.ones((1, 2, room - 20, 8), t.dtype)], 2) for t in (k, v)]
        feed = {"q": q, "k": wide[0], "v": wide[1]}
        return lower(graph, {}, numerics=NUMERICS["m1"]).run(feed)["y"]

    np.testing.assert_array_equal(found(20), found(64))
    np.testing.assert_array_equal(found(20), found(172))


TABLE_ERROR = 0.006
"""Of gelu, the coarsest table; a curve of curves has no more, as slopes are at most 1."""
GRID = 0.01
"""Products off the grid of 2^-16, and roundings the other way, on values about one."""
STEPS_AWAY = {"round"}
"""Rows that jump where the chip rounds ties another way."""


@pytest.mark.parametrize("sample", FP16, ids=str)
def test_a_row_comes_near_its_meaning(sample: Sample, rng):
    values = sample.values(rng)
    nodes = [o.input_(f"x{i}", TensorType.of(value)) for i, value in enumerate(values)]
    graph = Graph(
        {f"x{i}": node for i, node in enumerate(nodes)}, {"y": Node(sample.op, tuple(nodes))}
    )
    feed = {f"x{i}": value for i, value in enumerate(values)}
    want = o.evaluate(graph, feed, {})["y"]
    got = lower(graph, {}, numerics=NUMERICS["m1"]).run(feed)["y"]
    assert TensorType.of(got) == TensorType.of(want)
    if sample.op.name in STEPS_AWAY:
        return
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    settled = np.where(np.isnan(want), 0, want).astype(np.float64)
    finite = np.isfinite(settled)
    error = np.abs(got.astype(np.float64)[finite] - settled[finite])
    assert np.all(error <= (TABLE_ERROR + GRID) * np.maximum(np.abs(settled[finite]), 1))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_no_fp16_value_is_nan_whatever_is_fed(data):
    graph = data.draw(graphs(dtypes=(HALF, DType.INT32), weights=True))
    feed, weights = data.draw(feeds(graph)), data.draw(weight_feeds(graph))
    seed = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    for name, value in feed.items():
        if value.dtype == np.float16:
            odd = seed.integers(0, 1 << 16, value.shape, np.uint16).view(np.float16)
            feed[name] = np.where(seed.random(value.shape) < 0.5, odd, value).astype(np.float16)
    arrays = {n.op: weights[n.op.label] for n in graph.nodes if n.op.name == "weight"}
    for chip in ("m1", "m5"):
        found = lower(graph, arrays, numerics=NUMERICS[chip]).run(feed)
        again = lower(graph, arrays, numerics=NUMERICS[chip], threads=1).run(feed)
        for name, value in found.items():
            if graph.outputs[name].type.dtype is HALF:
                assert not np.isnan(value).any()
            np.testing.assert_array_equal(again[name], value)


def test_values_declared_fp32_are_computed_as_fp32():
    x = o.input_("x", TensorType(HALF, (4,)))
    wide = o.cast(x, DType.FP32)
    y = o.cast(wide * wide * o.const(2.0**-10, DType.FP32), HALF)
    feed = {"x": np.array([1000, 300, 0.001, NAN], np.float16)}
    got = lower(Graph({"x": x}, {"y": y}), {}, numerics=NUMERICS["m1"]).run(feed)["y"]
    want = feed["x"].astype(np.float64) ** 2 / 1024
    np.testing.assert_allclose(got[:2], want[:2], rtol=2**-11)
    assert got[2:].tolist() == [0, INF]


# Who asks for which


@pytest.mark.parametrize(("name", "of"), [("strict", "m1"), ("paper", "m4"), ("m3", "m3")])
def test_a_target_has_the_arithmetic_of_its_name(name, of):
    found = TARGETS[name].arithmetic
    assert dict(found.rules()) == dict(NUMERICS[name].rules())
    assert found.target == of
    assert backend("emulator", target=name).numerics == "exact"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("emulator", {"target": None, "numerics": "exact"}), "numerics: exact, without a target"),
        (("emulator", {"numerics": "fp64"}), "no such numerics: got fp64, want exact, fp16, fp32"),
        (("cpu", {"numerics": "exact"}), "numerics: not with device cpu: got exact"),
    ],
)
def test_numerics_that_a_device_has_not_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        backend(options[0], **options[1])


def test_numerics_are_the_target_s_own_unless_others_are_asked_for(rng):
    """2048 + 1: away on a device, to even as fp16, and kept by fp32."""
    x = o.input_("x", TensorType(HALF, (1, 1, 1, 32)))
    y = (x + o.const(1, HALF)) - o.const(2048, HALF)
    program = compile_graph(Graph({"x": x}, {"y": y}), {}, target="m1", pipeline=())
    feed = {"x": np.full((1, 1, 1, 32), 2048, np.float16)}
    for numerics, want in ((None, 2), ("exact", 2), ("fp16", 0), ("fp32", 1)):
        device = backend("emulator", target="m1", numerics=numerics)
        got = device.compile(program).run(feed)["y"].flat[0]
        assert got == want, numerics
    for numerics, want in ((None, 1), ("fp16", 0)):
        assert backend("cpu", numerics=numerics).compile(program).run(feed)["y"].flat[0] == want
