"""Elementwise ops give the very bits of `evaluate_op`; moves and choices are exact."""

from __future__ import annotations

import numpy as np
import pytest
from ops.samples import SAMPLES

from orion_ane.engine import lower
from orion_ane.ir import Graph, Node, Op
from orion_ane.ops import (
    cast,
    clip,
    evaluate,
    exp,
    greater_equal,
    input_,
    maximum,
    power,
    reduce_max,
    relu,
    rsqrt,
    select,
    sigmoid,
    sqrt,
    tanh,
    transpose,
)
from orion_ane.ops.leaf import Leaf
from orion_ane.types import DType, TensorType

MADE = [sample for sample in SAMPLES if not isinstance(sample.op, Leaf)]
SUMS = ("conv", "conv1x1", "linear", "matmul", "reduce_sum", "reduce_mean", "softmax")

CURVES = {
    "relu": relu,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "exp": exp,
    "sqrt": sqrt,
    "rsqrt": lambda x: rsqrt(x, 0.0),
    "neg": lambda x: -x,
    "clip": lambda x: clip(x, -0.5, 8.0),
    "pow": lambda x: power(x, 1.5),
    "to int32": lambda x: cast(x, DType.INT32),
    "to int8": lambda x: cast(x, DType.INT8),
    "to bool": lambda x: cast(x, DType.BOOL),
    "to fp16": lambda x: cast(x, DType.FP16),
    "to fp32": lambda x: cast(x, DType.FP32),
    "reduce_max": lambda x: reduce_max(x, (0,)),
    "softmax of one": lambda x: Node(Op.table["softmax"](0), (x,)),
}
PAIRS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "real_div": lambda x, y: x / y,
    "maximum": maximum,
    "greater_equal": greater_equal,
    "select": lambda x, y: select(greater_equal(x, y), x, -y),
}


def anything(dtype: DType, size: int, rng: np.random.Generator) -> np.ndarray:
    """Random bits, so infinities, NaN, subnormals, zeros, and half of all exponents absurd."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, size, unsigned, endpoint=True)
    found = bits.view(dtype.numpy)
    moderate = rng.uniform(-20, 20, size).astype(dtype.numpy)
    found[::2] = moderate[::2]
    found[:5] = np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype.numpy)[:size]
    return found


def run(graph: Graph, feed, numerics="fp16"):
    return lower(graph, {}, numerics=numerics).run(feed)


def assert_same_bits(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


SIZES = [1, 7, 300, 4099]


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_has_the_bits_of_its_meaning_for_every_fp16_value(name):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = input_("x", TensorType.of(every))
    graph = Graph({"x": x}, {"y": CURVES[name](x)})
    assert_same_bits(run(graph, {"x": every})["y"], evaluate(graph, {"x": every})["y"])


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32], ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CURVES)
def test_a_curve_has_the_bits_of_its_meaning(name, size, dtype, rng):
    x = input_("x", TensorType(dtype, (size,)))
    graph = Graph({"x": x}, {"y": CURVES[name](x)})
    feed = {"x": anything(dtype, size, rng)}
    assert_same_bits(run(graph, feed)["y"], evaluate(graph, feed)["y"])


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32], ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_has_the_bits_of_its_meaning(name, size, dtype, rng):
    x, y = (input_(label, TensorType(dtype, (size,))) for label in "xy")
    graph = Graph({"x": x, "y": y}, {"z": PAIRS[name](x, y)})
    feed = {"x": anything(dtype, size, rng), "y": rng.permutation(anything(dtype, size, rng))}
    assert_same_bits(run(graph, feed)["z"], evaluate(graph, feed)["z"])


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_has_the_bits_of_its_meaning_on_a_view(name, rng):
    x = input_("x", TensorType(DType.FP16, (19, 31)))
    graph = Graph({"x": x}, {"y": CURVES[name](transpose(x, (1, 0)))})
    feed = {"x": rng.uniform(-4, 4, (19, 31)).astype(np.float16)}
    assert_same_bits(run(graph, feed)["y"], evaluate(graph, feed)["y"])


@pytest.mark.parametrize("sample", [s for s in MADE if s.op.name not in SUMS], ids=str)
def test_a_sample_has_the_bits_of_its_meaning(sample, rng):
    nodes, values = sample.nodes(), sample.values(rng)
    inputs = {f"x{i}": node for i, node in enumerate(nodes)}
    graph = Graph(inputs, {"y": Node(sample.op, nodes)})
    feed = dict(zip(inputs, values, strict=True))
    assert_same_bits(run(graph, feed)["y"], evaluate(graph, feed)["y"])


def test_a_row_of_masked_scores_becomes_zeros_and_its_neighbour_is_untouched():
    """Case N03."""
    x = input_("x", TensorType(DType.FP16, (2, 4)))
    graph = Graph({"x": x}, {"y": Node(Op.table["softmax"](-1), (x,))})
    scores = np.full((2, 4), -np.inf, np.float16)
    scores[1, 0] = 0
    for numerics in ("fp16", "fp32"):
        y = run(graph, {"x": scores}, numerics)["y"]
        np.testing.assert_array_equal(y, [[0, 0, 0, 0], [1, 0, 0, 0]])
