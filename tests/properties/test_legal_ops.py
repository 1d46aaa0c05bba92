"""Every legaliser of ops: meaning kept, settled at once, and the limit that it serves is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.foreign_samples import blocks, convolutions
from ops.samples import ROWS
from oracles import evaluate64
from strategies import feeds, graphs

import orion_ane.ops as o
from orion_ane.ane.check import check
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node, verify
from orion_ane.mil.emit import emit
from orion_ane.ops.foreign.activation import Softplus
from orion_ane.ops.foreign.gates import EXACT, Gelu
from orion_ane.ops.foreign.layer_norm import LayerNorm
from orion_ane.passes.legal import LEGAL, legalise
from orion_ane.passes.legal.gelu import FORM_ERROR, exact_gelu
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
SERVES = {
    "constants": {"ANE141"},
    "attention": {"ANE006", "ANE150", "ANE151"},
    "layer_norm": {"ANE192", "ANE193"},
    "gelu": {"ANE010"},
    "curves": {"ANE105", "ANE183", "ANE189"},
    "linear": {"ANE017"},
    "convolutions": {"ANE013", "ANE143"},
    "ranks": {"ANE143"},
    "overflow": {"ANE171"},
    "roots": {"ANE103", "ANE196"},
    "concats": {"ANE001", "ANE139"},
    "scalars": {"ANE140"},
    "slices": {"ANE172", "ANE173"},
}
"""The limits that make each one fire."""
KEPT = frozenset(
    {"ANE001", "ANE006", "ANE010", "ANE013", "ANE103", "ANE139", "ANE150", "ANE172", "ANE196"}
)
"""Those that any graph of floats keeps afterwards; of two scalars one is still the first."""
DEMANDING = Target("demanding", frozenset().union(*SERVES.values()))
NAMES = tuple(SERVES)

FP32_CONSTANTS = 1e-6
"""A root of a size, 1 / √E, is a constant of fp32; and values are about one."""
FP16_CHAIN = 2.0**-7
"""Some ten roundings to fp16 where there was one, of values about one."""


def of_samples(dtype: DType) -> list:
    rows = {**blocks.ROWS, **convolutions.ROWS}
    rows |= {name: ROWS[name] for name in ("inverse", "softplus", "square")}
    found = [s.of(dtype) for row in rows.values() for s in row.samples if dtype in row.dtypes]
    return [s for s in found if not (s.op.name == "gelu" and s.op.mode == EXACT)]


def graph_of(sample) -> Graph:
    xs = sample.nodes()
    inputs = {f"x{i}": x for i, x in enumerate(xs)}
    return Graph(inputs, {"y": Node(sample.op, xs)})


def assert_settled(graph: Graph, after: Graph, names: tuple[str, ...] = NAMES) -> None:
    verify(after)
    assert legalise(after, DEMANDING, names) is after
    assert list(after.inputs) == list(graph.inputs)
    for name, node in graph.outputs.items():
        assert after.outputs[name].type == node.type


def close64(before: Graph, after: Graph, feed: dict[str, np.ndarray], tolerance: float) -> None:
    """Both in float64: what is left is what constants lose."""

    def values(graph: Graph):
        fed = {
            graph.inputs[k]: v.astype(np.float64) if v.dtype.kind == "f" else v
            for k, v in feed.items()
        }
        return evaluate64(list(graph.outputs.values()), fed)

    for want, got in zip(values(before), values(after), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sample", of_samples(FP32), ids=str)
def test_what_converters_write_means_the_same_when_it_is_spelled_out(sample, rng):
    graph = graph_of(sample)
    after = legalise(graph, DEMANDING, NAMES)
    assert_settled(graph, after)
    feed = {f"x{i}": v for i, v in enumerate(sample.values(rng))}
    close64(graph, after, feed, FP32_CONSTANTS)


@pytest.mark.parametrize("sample", of_samples(FP16), ids=str)
def test_in_fp16_it_means_the_same_but_for_rounding(sample, rng):
    graph = graph_of(sample)
    after = legalise(graph, DEMANDING, NAMES)
    feed = {f"x{i}": v for i, v in enumerate(sample.values(rng))}
    want, got = (o.evaluate(g, feed)["y"].astype(np.float32) for g in (graph, after))
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=FP16_CHAIN * scale)


@settings(max_examples=60)
@given(st.data(), graphs(max_nodes=12, smooth=True, dtypes=(FP32,), weights=False))
def test_each_legaliser_keeps_the_meaning_of_any_graph(data, graph):
    feed = data.draw(feeds(graph))
    for name in NAMES:
        after = LEGAL[name](graph, DEMANDING)
        assert_settled(graph, after, (name,))
        if after is not graph:
            close64(graph, after, feed, FP32_CONSTANTS)
    whole = legalise(graph, DEMANDING, NAMES)
    assert_settled(graph, whole)
    text = emit(whole).text
    assert not [d for d in check(text, Target("kept", KEPT)) if d.code], text


@given(graphs(max_nodes=8))
def test_a_target_that_demands_nothing_changes_nothing(graph):
    for name, codes in SERVES.items():
        others = DEMANDING.limits - codes
        assert LEGAL[name](graph, Target("others", others)) is graph


def ends(graph: Graph, **feed: np.ndarray) -> np.ndarray:
    return o.evaluate(graph, feed)["y"]


# Norms


def spelled_norm(dtype: DType, channels: int, eps: float) -> Graph:
    x = o.input_("x", TensorType(dtype, (1, channels, 1, 2)))
    return Graph({"x": x}, {"y": x * o.rsqrt(o.reduce_mean(x * x, (1,)), eps)})


def test_an_rms_norm_of_large_values_is_one_and_not_nothing():
    """Case N07: 768 values of 300 have squares that fp16 does not hold."""
    graph = spelled_norm(FP16, 768, 2.0**-10)
    x = np.full((1, 768, 1, 2), 300, np.float16)
    assert not ends(graph, x=x).any()  # the fault
    guarded = LEGAL["overflow"](graph, DEMANDING)
    np.testing.assert_allclose(ends(guarded, x=x), 1, atol=1e-3)


@pytest.mark.parametrize("shape", [(64, 1), (1, 64)])
def test_epsilon_is_scaled_with_the_values(shape):
    """Case N09: [100, 0, …], 64 wide, eps 1e-5 -> 7.9999997, and not 7.99744."""
    x = o.input_("x", TensorType(FP16, (1, *shape[:1], 1, *shape[1:])))
    axis = 1 if shape[0] == 64 else 3
    root = o.rsqrt(o.reduce_mean(x * x, (axis,)), 1e-5)
    guarded = LEGAL["overflow"](Graph({"x": x}, {"y": x * root}), DEMANDING)
    value = np.zeros(x.type.shape, np.float16)
    value.ravel()[0] = 100
    (exact,) = evaluate64([guarded.outputs["y"]], {guarded.inputs["x"]: value.astype(np.float64)})
    assert exact.ravel()[0] == pytest.approx(7.9999997, abs=1e-6)


def test_a_long_layer_norm_of_large_values_does_not_overflow(rng):
    """Cases N07 and N09."""
    x = o.input_("x", TensorType(FP16, (1, 2, 1024)))
    graph = Graph({"x": x}, {"y": Node(LayerNorm((2,), 2.0**-16), (x,))})
    legal = legalise(graph, DEMANDING, NAMES)
    assert_settled(graph, legal)
    value = rng.uniform(-30000, 30000, x.type.shape).astype(np.float16)
    want = ends(graph, x=value)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(ends(legal, x=value), want, atol=FP16_CHAIN)


# gelu


def test_the_exact_gelu_is_as_exact_as_its_series():
    """Case N11: the forms differ by 4.73e-4, which this keeps apart a thousand times over."""
    x = o.input_("x", TensorType(FP32, (8193,)))
    graph = Graph({"x": x}, {"y": exact_gelu(x)})
    value = np.linspace(-14, 14, 8193).astype(np.float32)
    exact = Graph({"x": x}, {"y": Node(Gelu(EXACT), (x,))})
    close64(exact, graph, {"x": value}, FORM_ERROR)


@pytest.mark.parametrize("mode", ["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])
def test_a_gelu_of_any_fp16_is_right_without_an_overflow(mode):
    """Cases N07 and N11: all finite values of fp16."""
    value = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    value = value[np.isfinite(value)]
    x = o.input_("x", TensorType.of(value))
    graph = Graph({"x": x}, {"y": Node(Gelu(mode), (x,))})
    want, got = ends(graph, x=value), ends(LEGAL["gelu"](graph, DEMANDING), x=value)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


def test_a_softplus_of_any_fp16_is_right_without_an_overflow():
    value = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    value = value[np.isfinite(value)]
    x = o.input_("x", TensorType.of(value))
    graph = Graph({"x": x}, {"y": Node(Softplus(), (x,))})
    want, got = ends(graph, x=value), ends(LEGAL["curves"](graph, DEMANDING), x=value)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2.0**-10)


# Masks


@pytest.mark.parametrize("dtype", [FP16, FP32])
def test_a_row_that_sees_nothing_is_never_nan_and_its_neighbour_is_right(dtype):
    """Cases N01 and N03."""
    of = TensorType(dtype, (1, 2, 4))
    q, mask = o.input_("q", of), o.input_("mask", TensorType(dtype, (2, 4)))
    k = o.input_("k", of.with_shape((1, 4, 4)))
    attention = Node(blocks.Attention(True), (q, k, k, mask))
    graph = Graph({"q": q, "k": k, "mask": mask}, {"y": attention})
    legal = legalise(graph, DEMANDING, NAMES)
    array = dtype.numpy.type
    hidden = np.array([[-np.inf] * 4, [0, -np.inf, -np.inf, -np.inf]], array)
    feed = {"q": np.full((1, 2, 4), 3, array), "mask": hidden}
    feed["k"] = np.arange(16, dtype=array).reshape(1, 4, 4)
    y = ends(legal, **feed)
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(y[0, 1], feed["k"][0, 0])


def test_a_constant_mask_of_minus_infinity_leaves_no_nan_where_softmax_is_naive():
    """Case N03: a device computes exp(x - max) of -inf."""
    x = o.input_("x", TensorType(FP16, (1, 2)))
    scores = x + o.const([-np.inf, -np.inf], FP16)
    held = LEGAL["overflow"](Graph({"x": x}, {"y": o.softmax(scores, 1)}), DEMANDING)
    (clipped,) = held.outputs["y"].args
    inner = Graph({"x": x}, {"y": clipped})
    assert np.isfinite(ends(inner, x=np.zeros((1, 2), np.float16))).all()


# Joins


def test_parts_are_joined_without_concat(rng):
    """Case A03: equal bit by bit."""
    parts = [o.input_(f"x{n}", TensorType(FP16, (1, n, 1, 4))) for n in (1, 2, 3)]
    graph = Graph({p.op.label: p for p in parts}, {"y": o.concat(*parts, axis=1)})
    after = LEGAL["concats"](graph, DEMANDING)
    assert not any(node.op.name == "concat" for node in after.nodes)
    feed = {p.op.label: rng.standard_normal(p.type.shape).astype(np.float16) for p in parts}
    np.testing.assert_array_equal(ends(after, **feed), ends(graph, **feed))
