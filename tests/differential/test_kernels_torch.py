"""Every kernel against torch in float64: the numpy meaning, and both devices."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_scenes import FORWARD, FP32, FULL, TOYS, Case, Scene, cases, random_tensors

import orion_ane
from orion_ane.compiler import compile as compile_graph
from orion_ane.models.paper import KERNELS
from orion_ane.nn.blocks import Precision
from orion_ane.ops import evaluate
from orion_ane.types import DType

FP32_SUMS = 1e-6  # of the largest value, in another order of summation
FP16_SUMS = 4e-3  # of the largest value: a dozen roundings one after the other

STORED = ("gpt2_decode_ffn", "ffn_bwd", "qkv_bwd", "head")
TOY_CASES = cases(TOYS)
FULL_CASES = cases(FULL, lanes=256, cached=256, rank=16)


@pytest.fixture(scope="module")
def scenes():
    """Scenes by model, each made when it is first asked for."""
    made = {}

    def scene(case: Case) -> Scene:
        key = (case.model, case.lanes)
        if key not in made:
            rng = np.random.default_rng(20260306)
            tensors = random_tensors(case.config, rng)
            made[key] = Scene(
                case.config, tensors, rng, lanes=case.lanes, cached=case.cached, rank=case.rank
            )
        return made[key]

    return scene


def distance(got, want):
    """The largest difference, as a share of the largest value."""
    return float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())


def worst(case, scene, got):
    assert set(got) == set(case.ports[1])
    return max(distance(got[port], scene[name]) for port, name in case.ports[1].items())


def in_fp32(case, scene):
    graph = case.graph(FP32)
    return evaluate(graph, scene.fed(case, np.float32), case.weights(graph, scene.tensors, FP32))


def on_device(case, scene, device, **options):
    graph = case.graph()
    program = compile_graph(graph, case.weights(graph, scene.tensors), target="strict")
    fed = scene.fed(case)
    fed = {p: fed[p].astype(n.type.dtype.numpy) for p, n in graph.inputs.items()}
    return orion_ane.backend(device, threads=2, **options).compile(program).run(fed)


@pytest.mark.parametrize("case", TOY_CASES, ids=str)
def test_a_kernel_means_what_torch_computes(case, scenes):
    scene = scenes(case)
    assert worst(case, scene, in_fp32(case, scene)) < FP32_SUMS


@pytest.mark.parametrize("device", ["cpu", "emulator"])
@pytest.mark.parametrize("case", TOY_CASES, ids=str)
def test_a_kernel_runs_on_a_device_as_torch_computes(case, device, scenes):
    scene = scenes(case)
    options = {"target": "strict"} if device == "emulator" else {}
    got = on_device(case, scene, device, **options)
    assert worst(case, scene, got) < FP16_SUMS
    kinds = {port: DType.of(value.dtype) for port, value in got.items()}
    assert kinds == {port: node.type.dtype for port, node in case.graph().outputs.items()}


@pytest.mark.parametrize("case", [c for c in TOY_CASES if c.name == "lora_linear"], ids=str)
def test_an_adapter_may_be_beside_any_projection(case, scenes):
    scene = scenes(case)
    for target in "qkvo":
        graph = KERNELS["lora_linear"](case.config, precision=FP32, **case.sizes, target=target)
        ports = {"x": "x_o" if target == "o" else "x"}
        ports |= {f"lora_{part}": f"lora_{target}_{part}" for part in "AB"}
        fed = {port: scene[name].astype(np.float32) for port, name in ports.items()}
        got = evaluate(graph, fed, case.weights(graph, scene.tensors, FP32))
        assert distance(got["y"], scene[f"y_{target}"]) < FP32_SUMS, target


@pytest.mark.parametrize("case", [c for c in TOY_CASES if c.name == "lora_attn"], ids=str)
def test_adapters_may_be_beside_all_projections_at_once(case, scenes):
    scene = scenes(case)
    graph = KERNELS["lora_attn"](case.config, precision=FP32, **case.sizes, targets="qkvo")
    fed = {port: scene[port].astype(np.float32) for port in graph.inputs}
    got = evaluate(graph, fed, case.weights(graph, scene.tensors, FP32))
    for port, name in FORWARD.items():
        assert distance(got[port], scene[f"lora_all_{name}"]) < FP32_SUMS, port


@pytest.mark.parametrize("case", [c for c in TOY_CASES if c.name in STORED], ids=str)
def test_matrices_may_be_stored_narrower_than_what_is_computed_in(case, rng):
    tensors = random_tensors(case.config, rng)
    tensors = {name: a.astype(np.float16).astype(np.float32) for name, a in tensors.items()}
    scene = Scene(case.config, tensors, rng, lanes=case.lanes, cached=case.cached, rank=case.rank)
    mixed = Precision(DType.FP32, DType.FP16)
    graph = case.graph(mixed)
    weights = case.weights(graph, tensors, mixed)
    assert {a.dtype for a in weights.values() if a.shape[0] > 1} == {np.dtype(np.float16)}
    got = evaluate(graph, scene.fed(case, np.float32), weights)
    assert worst(case, scene, got) < FP32_SUMS


@pytest.mark.slow
@pytest.mark.parametrize("case", FULL_CASES, ids=str)
def test_a_kernel_at_full_size_means_what_torch_computes(case, scenes):
    scene = scenes(case)
    assert worst(case, scene, in_fp32(case, scene)) < 10 * FP32_SUMS


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "emulator"])
@pytest.mark.parametrize("case", FULL_CASES, ids=str)
def test_a_kernel_at_full_size_runs_as_torch_computes(case, device, scenes):
    scene = scenes(case)
    options = {"target": "strict"} if device == "emulator" else {}
    assert worst(case, scene, on_device(case, scene, device, **options)) < 2 * FP16_SUMS
