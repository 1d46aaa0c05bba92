"""On a tape too, no place shows: equal rows and columns have equal products."""

from __future__ import annotations

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.ane.numerics import NUMERICS
from orion_ane.engine.lower import lowering
from orion_ane.engine.threads import Threads
from orion_ane.ir import Graph, Node
from orion_ane.ops.foreign.attention import Attention
from orion_ane.ops.foreign.conv import Conv, convolution
from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.linear import Linear
from orion_ane.types import Array, DType, TensorType

SINGLE = DType.FP32
SIZES = [1, 2, 5, 7, 17, 33, 64, 65, 172]


WAYS = {"fp32": "fp32", "exact": NUMERICS["m1"]}
"""What computes fp32 on a tape: a chip's rules are about fp16."""


def run(y: Node, feed: dict[str, Array], way: str = "fp32") -> Array:
    """The value of a graph by the tape, which other programs are run by a plan instead of."""
    stack, inputs = [y], {}
    while stack:
        node = stack.pop()
        stack.extend(node.args)
        if node.op.name == "input":
            inputs[node.op.label] = node
    graph = Graph({name: inputs[name] for name in feed}, {"y": y})
    tape = lowering(graph, {}, WAYS[way], Threads(2)).tape()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "matmul", None)  # no product is numpy's
        return tape.run(feed)["y"]


def input_(name: str, array: Array) -> Node:
    return o.input_(name, TensorType(SINGLE, array.shape))


@pytest.mark.parametrize("s", SIZES)
@pytest.mark.parametrize("c", [7, 64, 172])
@pytest.mark.parametrize("way", WAYS)
def test_a_column_s_place_shows_in_no_product(way, c, s, rng):
    column = rng.standard_normal((1, c, 1, 1)).astype(np.float32)
    x = np.broadcast_to(column, (2, c, 1, s)).copy()
    w = (rng.standard_normal((c, c, 1, 1)) / np.sqrt(c)).astype(np.float32)
    node, rows = input_("x", x), np.ascontiguousarray(x[:, :, 0].swapaxes(1, 2))
    lines, known = input_("rows", rows), o.const(w, SINGLE)
    flat = o.const(w[:, :, 0, 0], SINGLE)
    both = input_("w", w[:, :, 0, 0])
    spread = ConvTranspose((1, 1), (0, 0, 0, 0), (1, 1), has_bias=True)
    walk, bias = Conv((1, 2), (0, 0, 0, 0), (1, 1), has_bias=True), o.const(np.ones(c), SINGLE)
    graphs = {
        "conv1x1": o.conv1x1(node, known),
        "linear": Node(Linear(), (lines, flat, bias)),
        "matmul": o.matmul(lines, both, ty=True),
        "turned": o.matmul(both, lines, ty=True),
        "conv": convolution(walk, node, known, bias),
        "conv_transpose": Node(spread, (node, o.const(w.swapaxes(0, 1), SINGLE), bias)),
    }
    feeds = {"linear": {"rows": rows}}
    feeds |= {name: {"x": x} for name in ("conv1x1", "conv", "conv_transpose")}
    feed = {"rows": rows, "w": w[:, :, 0, 0]}
    found = {name: run(y, feeds.get(name, feed), way) for name, y in graphs.items()}
    for name in ("conv1x1", "conv", "conv_transpose"):
        found[name] = found[name][:, :, 0].swapaxes(1, 2)
    for name in ("linear", "conv", "conv_transpose"):
        found[name] = found[name] - 1
    found["turned"] = found["turned"].swapaxes(1, 2)
    want = w[:, :, 0, 0].astype(np.float64) @ column[0, :, 0, 0]
    for name, y in found.items():
        np.testing.assert_allclose(y[0, 0], want, atol=1e-4, err_msg=name)
        assert (y == y[:1, :1]).all(), name


@pytest.mark.parametrize("s", SIZES)
@pytest.mark.parametrize("c", [7, 64, 172])
@pytest.mark.parametrize("way", WAYS)
def test_a_row_s_place_shows_in_no_attention(way, c, s, rng):
    q = np.broadcast_to(rng.standard_normal((1, 1, c)), (2, s, c)).astype(np.float32)
    k, v = (np.broadcast_to(rng.standard_normal((1, 33, c)), (2, 33, c)) for _ in range(2))
    kept = (o.const(array, SINGLE) for array in (k, v))
    y = run(Node(Attention(), (input_("q", q), *kept)), {"q": q}, way)
    want = Attention().eval((q[0].astype(np.float64), k[0], v[0]))
    np.testing.assert_allclose(y[0, 0], want[0], atol=1e-4)
    assert (y == y[:1, :1]).all()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(), (2, 6, 9, 8), (2, 6, 20, 20)], ids=["cut", "less", "more"])
def test_a_transposed_convolution_on_a_tape_is_what_its_op_means(shape, groups, rng):
    op = ConvTranspose((2, 1), (1, 0, 2, 1), (1, 2), groups, True, shape)
    shapes = (2, 4, 5, 9), (4, 6 // groups, 3, 2), (6,)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    y = Node(op, (input_("x", x), input_("w", w), input_("b", b)))
    feed = {"x": x, "w": w, "b": b}
    np.testing.assert_allclose(run(y, feed), op.eval((x, w, b)), atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_on_a_tape_is_what_its_op_means(groups, rng):
    op = Conv((2, 1), (1, 0, 2, 1), (1, 2), groups, has_bias=True)
    shapes = (2, 4, 5, 6), (6, 4 // groups, 3, 2), (6,)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    y = convolution(op, input_("x", x), input_("w", w), input_("b", b))
    feed = {"x": x, "w": w, "b": b}
    np.testing.assert_allclose(run(y, feed), op.eval((x, w, b)), atol=1e-5)
