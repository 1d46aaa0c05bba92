"""The gradient of a whole layer, rotary positions included, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import orion_ane
from orion_ane.autodiff.taps import backward
from orion_ane.host.sampling import log_softmax
from orion_ane.models.config import LlamaConfig
from orion_ane.models.llama import Llama
from orion_ane.models.weights import Checkpoint, shapes
from orion_ane.nn.blocks import Precision
from orion_ane.ops import evaluate
from orion_ane.types import DType

FP32 = Precision(DType.FP32, DType.FP32)
CONFIG = LlamaConfig(
    vocab=32, context=16, dim=12, layers=1, heads=4, kv_heads=2, head_dim=6, hidden=20, tied=True
)
STEP = 1e-2
LANES = 5


def setting(rng):
    model = Llama(CONFIG)
    tensors = {
        name: (rng.normal(size=shape) * 0.5 + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes(CONFIG).items()
    }
    feeds = {
        "x": rng.normal(size=(1, 12, 1, LANES)).astype(np.float32),
        "mask": np.triu(np.full((LANES, LANES), -1e9), 1).astype(np.float32)[None, None],
        **{k: v.astype(np.float32) for k, v in model.tables(np.arange(LANES) + 3).items()},
    }
    graph = model.body(range(1), lanes=LANES, cached=0, precision=FP32)
    return model, tensors, feeds, graph


def test_query_and_key_weights_learn_through_the_rotation_R05(rng):
    model, tensors, feeds, graph = setting(rng)
    made = backward(graph, of=["hidden"], wrt=["x"])
    weights = model.weights(tensors, FP32)
    d_hidden = rng.normal(size=(1, 12, 1, LANES)).astype(np.float32)
    known = {**feeds, **evaluate(made.forward, feeds, weights), "d_hidden": d_hidden}
    known |= evaluate(made.graph, {n: known[n] for n in made.graph.inputs}, weights)

    def loss(**changed):
        outputs = evaluate(graph, feeds, {**weights, **changed})
        return float((outputs["hidden"].astype(np.float64) * d_hidden).sum())

    seen = set()
    for pair in made.pairs:
        gradient = known[pair.dy][0, :, 0] @ known[pair.x][0, :, 0].T
        assert np.abs(gradient).max() > 1e-3
        way = rng.normal(size=gradient.shape).astype(np.float32)
        way /= np.linalg.norm(way)
        step = STEP * way[..., None, None]
        label = pair.weight
        up, down = loss(**{label: weights[label] + step}), loss(**{label: weights[label] - step})
        slope = float((gradient * way).sum())
        size = float(np.linalg.norm(gradient))
        assert (up - down) / (2 * STEP) == pytest.approx(slope, abs=1e-3 * size)
        seen.add(label.rpartition(".")[2])
    assert seen == {"wq", "wk", "wv", "wo", "w1", "w2", "w3"}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_start_is_a_guess_among_all_tokens_R07(seed):
    """ln 32000 = 10.37: what is worse than guessing has a fault in its forward pass."""
    rng = np.random.default_rng(seed)
    config = LlamaConfig(
        vocab=32000,
        context=64,
        dim=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        hidden=48,
        tied=True,
    )
    tensors = {
        name: (np.ones(shape) if len(shape) == 1 else rng.normal(size=shape) * 0.02).astype("f4")
        for name, shape in shapes(config).items()
    }
    checkpoint = Checkpoint(
        config=config, tensors=tensors, tokenizer=None, stored="fp32", origin="random"
    )
    with orion_ane.Model(checkpoint, backend=orion_ane.backend("cpu", threads=1)) as model:
        ids = rng.integers(0, 32000, 40).tolist()
        assert model.loss(ids) == pytest.approx(10.37, abs=0.3)
    zeros = log_softmax(np.zeros((1, 32000)))
    assert -zeros[0, 5] == pytest.approx(10.373491, abs=1e-6)
