"""Wide products in bf16: torch's own numbers, and nothing else changed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from toys import toy_llama

import orion_ane
from orion_ane.compiler import compile as compile_graph
from orion_ane.engine.brain import has_wide_products
from orion_ane.errors import ConfigError
from orion_ane.ir import Graph
from orion_ane.mil import Program
from orion_ane.ops import cast, conv1x1, input_, weight
from orion_ane.runtime import backend
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32


def product(columns: int, *, batch: int = 1, stored: DType = FP32) -> Graph:
    x = input_("x", TensorType(FP32, (batch, 48, 1, columns)))
    w = weight("w", TensorType(stored, (40, 48, 1, 1)))
    return Graph({"x": x}, {"y": conv1x1(x, w if stored is FP32 else cast(w, FP32))})


def compiled(graph: Graph, w: np.ndarray) -> Program:
    return compile_graph(graph, {"w": w}, target=None)


@pytest.mark.parametrize("stored", [FP32, FP16])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_wide_product_is_torchs_in_bf16(rng, stored, batch):
    w = rng.normal(size=(40, 48, 1, 1)).astype(stored.numpy)
    x = rng.normal(size=(batch, 48, 1, 64)).astype(np.float32)
    program = compiled(product(64, batch=batch, stored=stored), w)
    got = backend("cpu", numerics="bf16").compile(program).run({"x": x})["y"]
    halves = [torch.from_numpy(a.astype(np.float32)).bfloat16() for a in (w.reshape(40, 48), x)]
    want = torch.einsum("oi,nihs->nohs", *halves).float().numpy()
    np.testing.assert_allclose(got, want, rtol=2**-7, atol=2**-7)
    exact = np.einsum("oi,nihs->nohs", w.reshape(40, 48).astype(np.float64), x)
    assert 2.0**-10 < abs(got - exact).max() / abs(exact).max() < 2.0**-6


def test_a_thin_product_is_that_of_fp32(rng):
    w = rng.normal(size=(40, 48, 1, 1)).astype(np.float32)
    x = {"x": rng.normal(size=(1, 48, 1, 16)).astype(np.float32)}
    program = compiled(product(16), w)
    got = [backend("cpu", numerics=n).compile(program).run(x)["y"] for n in ("bf16", "fp32")]
    np.testing.assert_array_equal(*got)
    assert not has_wide_products(product(16))
    assert has_wide_products(product(17))


def test_other_weights_reach_it(rng):
    arrays = [rng.normal(size=(40, 48, 1, 1)).astype(np.float32) for _ in range(2)]
    first, second = (compiled(product(64), array) for array in arrays)
    x = {"x": rng.normal(size=(1, 48, 1, 64)).astype(np.float32)}
    device = backend("cpu", numerics="bf16")
    loaded = device.compile(first)
    loaded.run(x)
    loaded.reload(second.weights)
    np.testing.assert_array_equal(loaded.run(x)["y"], device.compile(second).run(x)["y"])


def test_a_model_reads_its_prompt_in_bf16_and_goes_on_in_fp32(tmp_path):
    path, ids = str(toy_llama(tmp_path / "m")), list(range(3, 30))
    logits = []
    for numerics in ("bf16", "fp32"):
        with orion_ane.load(path, device="cpu", numerics=numerics) as model:
            assert model.numerics == numerics
            logits.append(model.logits(ids))
    apart = abs(logits[0] - logits[1]).max()
    assert 0 < apart < 0.05 * abs(logits[1]).max()


def test_without_torch_it_is_refused_with_the_command_that_helps(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else found(name, *a)
    )
    with pytest.raises(ConfigError, match=r'bf16 needs torch\n  hint: pip install "orion-ane\[bf'):
        backend("cpu", numerics="bf16")


def test_the_emulator_has_no_such_numerics():
    with pytest.raises(ConfigError, match="no such numerics: got bf16, want exact, fp16, fp32"):
        backend("emulator", numerics="bf16")


def test_ranges_are_those_of_the_run(rng):
    w = rng.normal(size=(40, 48, 1, 1)).astype(np.float32)
    x = {"x": rng.normal(size=(1, 48, 1, 64)).astype(np.float32)}
    loaded = backend("cpu", numerics="bf16").compile(compiled(product(64), w))
    largest = max(found.largest for found in loaded.ranges(x).ranges[1:])
    assert largest == pytest.approx(abs(loaded.run(x)["y"]).max())
