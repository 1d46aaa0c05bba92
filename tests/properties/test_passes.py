"""Every pass over random typed graphs: meaning kept, invariants kept, settled at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import feeds, graphs, weight_feeds

import orion_ane.ops as o
from orion_ane.ir import Graph, Node, isomorphic, verify
from orion_ane.passes import DEFAULT, PASSES, settle
from orion_ane.types import DType

EXAMPLES = 60
EACH = {**PASSES, "DEFAULT": settle}


@st.composite
def cluttered(draw) -> Graph:
    """A random graph with things strewn in that passes remove, or must look twice at."""
    graph = draw(graphs(max_nodes=12))
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        args = tuple(made[arg] for arg in node.args)
        new = node if args == node.args else Node(node.op, args)
        if node not in graph.inputs.values():
            for _ in range(draw(st.integers(0, 2))):
                new = draw(st.sampled_from(CLUTTER))(draw, new)
        made[node] = new
    return Graph(graph.inputs, {name: made[node] for name, node in graph.outputs.items()})


def neutral(draw, x: Node) -> Node:
    if x.type.dtype is DType.BOOL:
        return x
    number = draw(st.integers(0, 1))
    shape = tuple(n if draw(st.booleans()) else 1 for n in x.type.shape)
    value = o.const(np.full(shape[draw(st.integers(0, len(shape))) :], number), x.type.dtype)
    pair = (x, value) if draw(st.booleans()) else (value, x)
    return pair[0] * pair[1] if number else pair[0] + pair[1]


def transposed(draw, x: Node) -> Node:
    perm = tuple(draw(st.permutations(range(x.type.rank))))
    y = o.transpose(x, perm)
    return o.transpose(y, tuple(int(i) - len(perm) for i in np.argsort(perm))) if perm else x


def reshaped(draw, x: Node) -> Node:
    return o.reshape(o.reshape(x, (x.type.elements,)), x.type.shape)


def through(draw, x: Node) -> Node:
    return o.cast(o.cast(x, draw(st.sampled_from([DType.FP16, DType.FP32]))), x.type.dtype)


def doubled(draw, x: Node) -> Node:
    return o.maximum(x, Node(x.op, x.args)) if x.type.dtype is not DType.BOOL and x.args else x


def cut_out(draw, x: Node) -> Node:
    if not x.type.rank:
        return x
    axis = draw(st.integers(0, x.type.rank - 1))
    ends = list(x.type.shape)
    at = draw(st.integers(0, 1))
    begin = [0] * len(ends)
    begin[axis], ends[axis] = at * ends[axis], (at + 1) * ends[axis]
    return o.slice_by_index(o.concat(x, x, axis=axis), tuple(begin), tuple(ends))


def padded(draw, x: Node) -> Node:
    if not x.type.dtype.is_float or not x.type.rank:
        return x
    before = tuple(draw(st.integers(0, 1)) for _ in x.type.shape)
    ends = tuple(b + n for b, n in zip(before, x.type.shape, strict=True))
    return o.slice_by_index(o.pad(x, before, before), before, ends)


CLUTTER = (neutral, transposed, reshaped, through, doubled, cut_out, padded)


@settings(max_examples=EXAMPLES)
@given(st.data(), st.one_of(graphs(), cluttered()))
def test_each_pass_keeps_the_meaning_and_the_invariants(data, graph):
    feed, weights = data.draw(feeds(graph)), data.draw(weight_feeds(graph))
    want = o.evaluate(graph, feed, weights)
    verify(graph)
    for name, run in EACH.items():
        after = run(graph)
        verify(after)
        assert len(after.nodes) <= len(graph.nodes), name
        assert list(after.inputs) == list(graph.inputs), name
        got = o.evaluate(after, feed, weights)
        assert list(got) == list(want), name
        for key, value in want.items():  # every rule is exact
            np.testing.assert_array_equal(got[key], value, name, strict=True)


@settings(max_examples=EXAMPLES)
@given(st.one_of(graphs(), cluttered()))
def test_a_settled_graph_comes_back_itself(graph):
    for name, run in EACH.items():
        after = run(graph)
        assert run(after) is after, name


@settings(max_examples=EXAMPLES)
@given(cluttered())
def test_no_order_of_the_passes_leaves_more_than_another(graph):
    one, other = settle(graph, DEFAULT), settle(graph, DEFAULT[::-1])
    assert len(one.nodes) == len(other.nodes)
    assert isomorphic(one, other)
