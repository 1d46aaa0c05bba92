"""What a target refuses runs there all the same, spelled in other ops (case A03)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.ane.check import check
from orion_ane.ane.targets import TARGETS
from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph, Node
from orion_ane.ir.graph import toposort
from orion_ane.ops.foreign.attention import Attention
from orion_ane.ops.foreign.conv import BY_POINTS
from orion_ane.ops.foreign.gates import GELU_MODES, Gelu, Silu
from orion_ane.ops.foreign.layer_norm import LayerNorm
from orion_ane.ops.foreign.linear import Linear
from orion_ane.runtime import backend
from orion_ane.types import Array, DType, TensorType

FP16 = DType.FP16
FP16_CHAIN = 2.0**-7
"""Some ten roundings to fp16 where there was one, of values about one."""
X = o.input_("x", TensorType(FP16, (1, 48, 1, 64)))
Z = o.input_("z", TensorType(FP16, (1, 16, 1, 64)))
ROWS = o.input_("x", TensorType(FP16, (1, 4, 1024)))
HEADS = o.input_("x", TensorType(FP16, (1, 4, 32, 32)))
W = o.weight("w", TensorType(FP16, (8, 48, 1, 1)))
MATRIX = o.weight("w", TensorType(FP16, (32, 1024)))
BIAS = o.weight("b", TensorType(FP16, (8,)))
LONG_BIAS = o.weight("b", TensorType(FP16, (32,)))
GAIN = o.weight("g", TensorType(FP16, (1024,)))
MASK = np.where(np.arange(32)[:, None] >= np.arange(32), 0.0, -np.inf)

REFUSED: dict[str, Node] = {
    "concat": o.concat(X, Z, axis=1),
    **{f"gelu {mode}": Node(Gelu(mode), (X,)) for mode in GELU_MODES},
    "silu": Node(Silu(), (X,)),
    "conv with bias": Node(replace(BY_POINTS, has_bias=True), (X, W, BIAS)),
    "masked attention": Node(Attention(True), (HEADS, HEADS, HEADS, o.const(MASK, FP16))),
    "linear": Node(Linear(), (ROWS, MATRIX, LONG_BIAS)),
    "layer norm": Node(LayerNorm((2,), 2.0**-10, True), (ROWS, GAIN)),
    "rms norm": ROWS * o.rsqrt(o.reduce_mean(ROWS * ROWS, (2,)), 2.0**-10),
}


def graph_of(y: Node) -> Graph:
    inputs = {n.op.label: n for n in toposort([y]) if n.op.name == "input"}
    return Graph(inputs, {"y": y})


def drawn(of: TensorType, rng: np.random.Generator) -> Array:
    return rng.uniform(-1, 1, of.shape).astype(of.dtype.numpy)


@pytest.mark.parametrize("name", ["paper", "strict", "m1", "m5"])
@pytest.mark.parametrize("case", REFUSED)
def test_an_op_that_is_refused_is_rewritten_and_equal_to_itself(case, name, rng):
    graph = graph_of(REFUSED[case])
    inputs = {key: drawn(node.type, rng) for key, node in graph.inputs.items()}
    weights = {n.op.label: drawn(n.type, rng) for n in graph.nodes if n.op.name == "weight"}
    program = compile_graph(graph, weights, target=name)
    assert not check(program, TARGETS[name])
    executable = backend("cpu").compile(program)
    got = executable.run(inputs)["y"]
    want = o.evaluate(graph, inputs, weights)["y"].astype(np.float32)
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=FP16_CHAIN * scale)
