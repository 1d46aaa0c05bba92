"""Constants that are folded, and what each op works on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import feeds, graphs
from threadpoolctl import threadpool_limits

import orion_ane.ops as o
from orion_ane.ane.layout import surface_bytes
from orion_ane.ir import Graph, Node, verify
from orion_ane.ops.leaf import Input
from orion_ane.passes import PASSES
from orion_ane.passes.fold import SMALL
from orion_ane.passes.sram import resident_bytes, working_sets
from orion_ane.types import DType, TensorType


@given(st.data(), graphs(weights=False))
def test_a_graph_whose_inputs_are_known_is_its_values_bit_by_bit(data, graph):
    feed = data.draw(feeds(graph))
    known: dict[Node, Node] = {}
    for node in graph.nodes:
        name = next((n for n, leaf in graph.inputs.items() if leaf is node), None)
        if isinstance(node.op, Input):
            known[node] = o.const(feed[name], node.type.dtype)
        else:
            known[node] = Node(node.op, tuple(known[arg] for arg in node.args))
    outputs = {name: known[node] for name, node in graph.outputs.items()}
    folded = PASSES["fold"](Graph(graph.inputs, outputs))
    verify(folded)
    want = o.evaluate(graph, feed)
    for name, node in folded.outputs.items():
        (value,) = node.args  # all that is left is the identity of a constant
        assert node.op.name == "identity"
        assert value.op.value.tobytes() == want[name].tobytes()
    assert PASSES["fold"](folded) is folded


def test_a_constant_grows_to_a_bound_and_no_further():
    small = o.const(np.ones(2), DType.FP16)
    for elements, is_folded in ((SMALL, True), (SMALL + 1, False)):
        y = o.tanh(o.pad(small, (0,), (elements - 2,)))
        after = PASSES["fold"](Graph({}, {"y": y}))
        assert (after.outputs["y"].op.name == "identity") == is_folded


def test_what_is_much_work_is_not_folded():
    for rows, is_folded in ((16, True), (32, False)):  # 2²⁰ elements, as many as text may hold
        long = o.const(np.ones((rows, (1 << 20) // rows)), DType.FP16)
        after = PASSES["fold"](Graph({}, {"y": o.reduce_sum(long, axes=(1,))}))
        assert (after.outputs["y"].op.name == "identity") == is_folded


def test_a_product_of_large_sides_is_left_to_the_engine():
    for inner, is_folded in ((SMALL, True), (SMALL + 1, False)):
        sides = (o.const(np.ones(shape), DType.FP16) for shape in ((1, inner), (inner, 1)))
        after = PASSES["fold"](Graph({}, {"y": o.matmul(*sides)}))
        assert (after.outputs["y"].op.name == "identity") == is_folded


def test_a_working_set_is_each_operand_and_the_result_once_in_whole_rows():
    x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 8)))  # 16 bytes a row: 64
    w = o.weight("w", TensorType(DType.FP16, (2, 4, 1, 1)))
    square, y = x * x, o.conv1x1(x * x, w)
    found = working_sets(Graph({"x": x}, {"y": y, "z": square}))
    assert found[square] == 2 * 4 * 64
    assert found[y] == 4 * 64 + surface_bytes(w.type) + 2 * 64
    assert x not in found
    assert w not in found


def test_what_is_not_reported_of_a_chip_is_not_counted_on():
    assert resident_bytes("m5") > resident_bytes("m3") == resident_bytes("m1") == 2_000_000


def test_the_threads_of_numpy_s_blas_do_not_show_in_a_folded_product(rng):
    found = []
    sizes = [(30, 600, 30), (64, 64, 64), (1, 4096, 1), (1, 8000, 2), (40, 300, 41)]
    sides = [(rng.standard_normal((m, k)), rng.standard_normal((k, n))) for m, k, n in sizes]
    for count in (1, 2, 3):
        with threadpool_limits(count, user_api="blas"):
            products = (
                o.matmul(*(o.const(side.astype(np.float32), DType.FP32) for side in pair))
                for pair in sides
            )
            graph = PASSES["fold"](Graph({}, {f"y{i}": y for i, y in enumerate(products)}))
            found.append([node.op.data for node in graph.nodes if node.op.name == "const"])
    assert found[0] == found[1] == found[2]
