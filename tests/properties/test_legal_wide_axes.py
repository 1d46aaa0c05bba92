"""Values too wide are split: every way by which a value may be wide, at sizes that fit a test."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.samples import SAMPLES
from strategies import feeds, graphs, weight_feeds

import orion_ane.ops as o
from orion_ane.ir import Graph, Node, Op, verify
from orion_ane.ir.graph import toposort
from orion_ane.ops.leaf import Leaf
from orion_ane.passes.legal.splitting import Caps, Splitter, UnsplitError, bounds
from orion_ane.passes.legal.wide_axes import split
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
MOST = 8
SMALL = Caps(lambda rank: (MOST,) * rank, MOST - 1)
WIDE = 21


MADE = [
    sample
    for sample in SAMPLES
    if not isinstance(sample.op, Leaf) and all(of.dtype != FP16 for of in sample.types)
]


def x_(name: str, *shape: int, of: DType = FP32) -> Node:
    return o.input_(name, TensorType(of, shape))


def outer(of: DType = FP32) -> Node:
    """A value [1,1,4,WIDE] that is too wide, of ones that are not."""
    left, right = x_("l", 1, 1, 4, 3, of=of), x_("r", 1, 1, 3, 7, of=of)
    return o.concat(*(o.matmul(left, right * o.const(n, of)) for n in (1, 2, 3)), axis=3)


def totalled(y: Node) -> Node:
    return o.reduce_sum(y, (3,))


def turned(y: Node) -> Node:
    return o.reshape(y, (1, 4, 1, WIDE))


WAYS = {
    "sum": lambda: o.reduce_sum(outer(), (3,)),
    "largest": lambda: o.reduce_max(outer(), (3,)),
    "mean": lambda: o.reduce_mean(outer(), (2, 3)),
    "curve": lambda: totalled(o.sigmoid(outer())),
    "elementwise": lambda: totalled(outer() * outer() + x_("b", 4, 1)),
    "select": lambda: totalled(
        o.select(o.greater_equal(outer(), o.const(0, FP32)), outer(), -outer())
    ),
    "constant": lambda: totalled(outer() * o.const(np.arange(WIDE), FP32)),
    "softmax along": lambda: totalled(o.softmax(outer(), 3) * outer()),
    "softmax across": lambda: totalled(o.softmax(outer(), -2)),
    "contraction": lambda: o.matmul(outer(), outer(), ty=True),
    "rows of a product": lambda: o.reduce_sum(
        o.matmul(outer(), x_("y", 1, 1, 4, 2), tx=True), (2,)
    ),
    "columns of a product": lambda: totalled(o.matmul(x_("y", 1, 1, 2, 4), outer())),
    "transpose": lambda: o.reduce_sum(o.transpose(outer(), (0, 3, 1, 2)), (1,)),
    "reshape": lambda: totalled(turned(outer())),
    "cast": lambda: totalled(o.cast(outer(FP16), FP32)),
    "smallest": lambda: Node(Op.table["reduce_min"]((3,)), (outer(),)),
    "slice": lambda: o.slice_by_index(outer(), (0, 0, 1, 5), (1, 1, 3, 12)),
    "slice of a piece": lambda: totalled(o.slice_by_index(outer(), (0, 0, 0, 2), (1, 1, 4, 20))),
    "pad across": lambda: totalled(o.pad(outer(), (0, 0, 1, 0), (0, 0, 2, 0))),
    "concat across": lambda: totalled(o.concat(outer(), outer(), axis=2)),
    "lanes of a convolution": lambda: totalled(
        o.conv1x1(turned(outer()), o.weight("w", TensorType(FP32, (5, 4, 1, 1))))
    ),
    "channels of a convolution": lambda: o.conv1x1(
        o.transpose(outer(), (0, 3, 1, 2)), o.transpose(outer(), (2, 3, 0, 1))
    ),
    "what a convolution reads": lambda: o.conv1x1(
        x_("c", 1, MOST, 1, 3), o.weight("w", TensorType(FP32, (5, MOST, 1, 1)))
    ),
    "outputs of a convolution": lambda: o.reduce_max(
        o.conv1x1(x_("c", 1, 4, 1, 3), o.transpose(outer(), (3, 2, 0, 1))), (1,)
    ),
}


def graph_of(y: Node) -> Graph:
    leaves = [node for node in toposort([y]) if node.op.name == "input"]
    return Graph({f"x{i}": leaf for i, leaf in enumerate(leaves)}, {"y": y})


def too_wide(graph: Graph) -> list[Node]:
    return [
        node
        for node in graph.nodes
        if SMALL.wide(node.type)
        or (node.op.name == "conv1x1" and node.args[0].type.shape[1] > SMALL.reads)
    ]


def assert_same(one: Graph, other: Graph, feed: dict, weights: dict) -> None:
    want, got = o.evaluate(one, feed, weights), o.evaluate(other, feed, weights)
    for name, value in want.items():
        if value.dtype.kind == "f":  # sums of parts are rounded elsewhere
            rounding = 2e-2 if value.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(got[name], value, rtol=rounding, atol=rounding)
        else:
            np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_is_too_wide_is_computed_in_pieces(way, rng):
    graph = graph_of(WAYS[way]())
    assert too_wide(graph)
    after = split(graph, SMALL)
    verify(after)
    assert not too_wide(after)
    assert split(after, SMALL) is after
    feed = {
        name: rng.normal(size=x.type.shape).astype(x.type.dtype.numpy)
        for name, x in graph.inputs.items()
    }
    weights = {
        n.op.label: rng.normal(size=n.type.shape).astype(np.float32)
        for n in graph.nodes
        if n.op.name == "weight"
    }
    assert_same(graph, after, feed, weights)


@settings(max_examples=60)
@given(st.data(), graphs(max_nodes=10, smooth=True), st.integers(1, 4))
def test_what_is_split_means_the_same_whatever_the_caps(data, graph, most):
    feed, weights = data.draw(feeds(graph)), data.draw(weight_feeds(graph))
    caps = Caps(lambda rank: (most,) * rank, most)
    after = split(graph, caps)
    verify(after)
    assert list(after.inputs) == list(graph.inputs)
    assert_same(graph, after, feed, weights)
    again = split(after, caps)
    assert again is after


@given(st.integers(1, 200000), st.integers(1, 70000))
def test_stretches_cover_an_axis_in_pieces_of_about_one_length(size, most):
    found = bounds(size, most)
    assert found[0][0] == 0
    assert found[-1][1] == size
    assert all(end == begin for (_, end), (begin, _) in pairwise(found))
    assert all(0 < end - begin <= most for begin, end in found)
    assert len(found) == -(-size // most)


def test_what_is_wide_at_a_port_stays():
    x = x_("x", 1, 1, 4, WIDE)
    graph = Graph({"x": x}, {"y": o.exp(x)})
    assert split(graph, SMALL) is graph


def test_a_long_chain_of_wide_values_needs_no_deep_stack():
    y = outer()
    for _ in range(3000):
        y = -y
    after = split(graph_of(totalled(y)), SMALL)
    assert not too_wide(after)


@pytest.mark.parametrize("sample", MADE, ids=str)
def test_a_piece_of_any_row_is_that_part_of_the_whole(sample, rng):
    """Of all rows, since one that looks at its neighbours must not pass for one that does not."""
    nodes, values = sample.nodes(), sample.values(rng)
    whole = Node(sample.op, nodes)
    splitter = Splitter(Caps(lambda rank: (1 << 20,) * rank, 1 << 20))
    for node in nodes:
        splitter.add(node)
    leaves = {f"x{i}": node for i, node in enumerate(nodes)}
    feed = dict(zip(leaves, values, strict=True))
    want = o.evaluate(Graph(leaves, {"y": whole}), feed)["y"]
    for axis, size in enumerate(whole.type.shape):
        if size == 1:
            continue
        try:
            piece = splitter.pulled(whole, axis, 1, size)
        except UnsplitError:
            continue
        got = o.evaluate(Graph(leaves, {"y": piece}), feed)["y"]
        part = want.take(range(1, size), axis)
        assert got.dtype == part.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, part, rtol=2e-3, atol=2e-3)
        else:
            np.testing.assert_array_equal(got, part)
