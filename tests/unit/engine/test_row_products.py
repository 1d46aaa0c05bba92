"""A row times a matrix, as adapters have it in decoding: by columns, without one wait more."""

from __future__ import annotations

import numpy as np
import pytest

from orion_ane.engine.plan.layout import Kind
from orion_ane.engine.plan.plan import plan
from orion_ane.engine.threads import Threads
from orion_ane.ir import Graph, Node, Op
from orion_ane.lora.inject import with_adapters
from orion_ane.models.build import decoder_of
from orion_ane.models.config import LlamaConfig
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Weight, exp, input_, matmul, relu, reshape, slice_by_index
from orion_ane.types import DType, TensorType

SUMS = 1e-5  # fp32 against float64
LLAMA = LlamaConfig(
    vocab=97,
    context=128,
    dim=576,
    layers=2,
    heads=9,
    kv_heads=3,
    head_dim=64,
    hidden=1536,
    tied=True,
)


def run(graph, feed, threads=2, *, rounds=False):
    made = plan(graph, {}, rounds=rounds, threads=Threads(threads))
    return made.run(feed)["y"]


def of(dtype, *shape):
    return TensorType(dtype, shape)


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
@pytest.mark.parametrize("columns", [1, 63, 64, 96, 256, 700, 1536])
@pytest.mark.parametrize("is_turned", [False, True])
def test_its_values_are_those_of_the_product_for_any_threads(dtype, columns, is_turned, rng):
    """A piece of a larger matrix, read where it lies, with what follows element by element."""
    shape = (1, 1, columns, 16) if is_turned else (1, 1, 16, columns)
    x = input_("x", of(DType.FP32, 1, 1, 1, 16))
    w = input_("w", of(dtype, 1, 3, *shape[2:]))
    piece = slice_by_index(w, (0, 1, 0, 0), (1, 2, *shape[2:]))
    if dtype is DType.FP16:
        piece = Node(Op.table["cast"](DType.FP32), (piece,))
    z = reshape(matmul(x, piece, ty=is_turned), (1, columns, 1, 1))
    other = input_("o", of(DType.FP32, 1, columns, 1, 1))
    graph = Graph({"x": x, "w": w, "o": other}, {"y": relu(exp(z * other) + z)})
    feed = {n: rng.normal(0, 0.3, i.type.shape) for n, i in graph.inputs.items()}
    feed = {n: a.astype(graph.inputs[n].type.dtype.numpy) for n, a in feed.items()}
    found = run(graph, feed, 1)
    side = feed["w"][0, 1].astype(np.float64)
    want = (feed["x"][0, 0, 0].astype(np.float64) @ (side.T if is_turned else side)).reshape(-1)
    want = np.maximum(np.exp(want * feed["o"].reshape(-1)) + want, 0)
    np.testing.assert_allclose(found.reshape(-1), want, rtol=SUMS, atol=SUMS)
    for threads in (2, 3):
        assert (run(graph, feed, threads) == found).all()


@pytest.mark.parametrize("columns", [256, 320, 300])
def test_in_fp16_it_rounds_once(columns, rng):
    x, w = (input_(n, of(DType.FP16, 1, 1, r, c)) for n, r, c in (("x", 1, 40), ("w", 40, columns)))
    graph = Graph({"x": x, "w": w}, {"y": matmul(x, w)})
    feed = {n: rng.normal(0, 1, i.type.shape).astype(np.float16) for n, i in graph.inputs.items()}
    found = run(graph, feed, rounds=True)
    want = feed["x"][0, 0].astype(np.float64) @ feed["w"][0, 0].astype(np.float64)
    step = np.spacing(np.abs(want).astype(np.float16)).astype(np.float64)
    assert (np.abs(found[0, 0] - want) <= 0.501 * step + SUMS).all()


def test_ports_of_adapters_add_no_wait_but_for_what_follows_rows_without_them():
    precision = Precision(DType.FP32, DType.FP16)
    bare = decoder_of(LLAMA).body(range(2), lanes=1, cached=64, precision=precision)
    phases = []
    for graph in (bare, with_adapters(bare, 16)):
        weights = {
            node.op: np.zeros(node.op.of.shape, node.op.of.dtype.numpy)
            for node in graph.nodes
            if isinstance(node.op, Weight)
        }
        commands = plan(graph, weights, rounds=False, threads=Threads(2)).code.commands
        phases.append(1 + max(command.phase for command in commands))
    kinds = [command.kind for command in commands]
    assert phases[1] == phases[0] + 2, "the hidden values of a layer"
    assert kinds.count(Kind.COLUMNS) == 7 * 2
    assert kinds.count(Kind.ROWS) == 2 * 7 * 2
    wide = [c for c in commands if c.kind is Kind.COLUMNS and c.total == LLAMA.hidden]
    assert all(command.units == 6 for command in wide)
