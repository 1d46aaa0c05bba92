"""The table of kernels: what each takes and refuses, and what all of them keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_scenes import FP32, FULL, GROUPED, LAYER, SMALL, STORIES, TOYS, cases, random_tensors

from orion_ane.ane.check import check
from orion_ane.ane.limits import Symptom
from orion_ane.ane.targets import target
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.ir import verify
from orion_ane.mil import pack
from orion_ane.models.gpt2 import GPT2
from orion_ane.models.llama import Llama
from orion_ane.models.paper import KERNELS, for_kernel
from orion_ane.ops import Weight, evaluate
from orion_ane.types import DType

FP16_CHAIN = 2.0**-7
"""Some roundings to fp16, the sum's among them."""
PAPER = [
    "gpt2_prefill_attn",
    "gpt2_prefill_ffn",
    "gpt2_final_ln",
    "gpt2_decode_proj",
    "gpt2_decode_ffn",
    "fwd_attn",
    "fwd_ffn",
    "ffn_bwd",
    "sdpa_bwd1",
    "sdpa_bwd2",
    "qkv_bwd",
    "classifier_fwd",
    "vocab_softmax",
    "lora_linear",
    "lora_attn",
]
TOY_CASES = cases(TOYS)
FULL_CASES = cases(FULL, lanes=256, cached=256, rank=16)


def placed(graph):
    """A file of zeros with every weight of a graph."""
    leaves = {node.op.label: node.type for node in graph.nodes if isinstance(node.op, Weight)}
    return pack({label: np.zeros(of.shape, of.dtype.numpy) for label, of in leaves.items()})


def broken(program, name="strict"):
    return [str(d) for d in check(program, target(name)) if d.symptom != Symptom.SLOW.value]


def types(ports):
    return {name: str(node.type) for name, node in ports.items()}


def test_the_paper_s_kernels_come_first_under_their_names():
    assert list(KERNELS) == [*PAPER, "body_prefill", "body_decode", "head"]
    assert all(name == kernel.name for name, kernel in KERNELS.items())


@pytest.mark.parametrize("case", TOY_CASES, ids=str)
def test_a_kernel_prints_as_it_did(case, golden):
    sizes = case.sizes | ({"layers": range(1)} if "layers" in KERNELS[case.name].sizes else {})
    graph = KERNELS[case.name](case.config, **sizes)
    program = compile_graph(graph, placed(graph), target="strict")
    golden(f"mil/kernels/{case.name}.{case.model}.mil", program.text)


@pytest.mark.parametrize("case", TOY_CASES, ids=str)
def test_a_toy_kernel_breaks_no_limit(case):
    graph = case.graph()
    verify(graph)
    assert not broken(compile_graph(graph, placed(graph), target="strict"))


@pytest.mark.parametrize("ports", [DType.FP16, DType.FP32], ids=str)
@pytest.mark.parametrize("case", [c for c in FULL_CASES if not c.name.startswith("body")], ids=str)
def test_a_kernel_at_full_size_breaks_no_limit(case, ports):
    graph = case.graph(ports=ports)
    assert not broken(compile_graph(graph, placed(graph), target="strict"))


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in FULL_CASES if c.name.startswith("body")], ids=str)
def test_a_whole_model_breaks_no_limit(case):
    graph = case.graph()
    assert not broken(compile_graph(graph, placed(graph), target="strict"))


@pytest.mark.parametrize("case", TOY_CASES, ids=str)
def test_all_ports_have_the_type_that_is_asked_for(case):
    for ports in (DType.FP16, DType.FP32):
        graph = case.graph(ports=ports)
        nodes = [*graph.inputs.values(), *graph.outputs.values()]
        assert {node.type.dtype for node in nodes} == {ports}
    usual = case.graph()
    takes, gives = KERNELS[case.name].takes, KERNELS[case.name].gives
    assert {node.type.dtype for node in usual.inputs.values()} == {takes}
    assert {node.type.dtype for node in usual.outputs.values()} == {gives}
    exact = case.graph(FP32)
    assert {node.type.dtype for node in exact.nodes} == {DType.FP32}


def test_the_ports_are_the_paper_s_at_the_paper_s_sizes():
    layer = {"layer": 0}
    graph = KERNELS["gpt2_decode_proj"](FULL["gpt2"], **layer)
    assert types(graph.inputs) == {"x": "fp32[1,768,1,16]"}
    assert types(graph.outputs) == dict.fromkeys(("q32", "k32", "v32"), "fp32[1,768,1,16]")
    graph = KERNELS["ffn_bwd"](STORIES, **layer)
    assert types(graph.inputs) == {"inp": "fp16[1,4864,1,256]"}
    graph = KERNELS["sdpa_bwd1"](STORIES, **layer)
    assert types(graph.inputs) == {"inp": "fp16[1,3072,1,256]"}
    square = "fp16[1,3072,1,256]"
    assert types(graph.outputs) == {"dvf": "fp16[1,768,1,256]", "pf": square, "dpf": square}
    graph = KERNELS["sdpa_bwd2"](STORIES)
    assert types(graph.inputs)["inp"] == "fp16[1,7680,1,256]"
    assert not [node for node in graph.nodes if isinstance(node.op, Weight)]
    graph = KERNELS["classifier_fwd"](STORIES)
    assert types(graph.outputs) == {"output": "fp32[1,32000,1,256]"}


@pytest.mark.parametrize(
    ("name", "sizes", "why"),
    [
        ("fwd_attn", {"layer": 2}, "fwd_attn: no such layer: got 2, want 0 to 1"),
        ("fwd_attn", {"layer": -1}, "no such layer"),
        ("fwd_attn", {"layer": True}, "no such layer"),
        ("fwd_attn", {"layer": 0, "lanes": 0}, "no such lanes: got 0, want 1 to 65536"),
        ("fwd_attn", {"layer": 0, "lanes": 65537}, "no such lanes"),
        ("fwd_attn", {"layer": 0, "lanes": "8"}, "no such lanes"),
        ("fwd_attn", {}, "fwd_attn: layer must be given"),
        ("fwd_attn", {"layer": 0, "bucket": 8}, "no such size: got bucket, want layer, lanes"),
        ("sdpa_bwd2", {"layer": 0}, "no such size: got layer, want lanes"),
        ("lora_linear", {"layer": 0, "rank": 0}, "no such rank"),
        ("lora_linear", {"layer": 0, "target": "qv"}, "want one of q, k, v, o"),
        ("lora_attn", {"layer": 0, "targets": ""}, "want some of q, k, v, o"),
        ("lora_attn", {"layer": 0, "targets": "qx"}, "want some of q, k, v, o"),
        ("lora_attn", {"layer": 0, "alpha": float("nan")}, "want a finite number"),
        ("body_decode", {"cached": 0}, "no such cached: got 0, want 1 to 65536"),
        ("body_prefill", {"lanes": 8, "layers": range(1, 3)}, r"want a stretch of range\(2\)"),
        ("body_prefill", {"lanes": 8, "layers": range(0)}, "a stretch"),
        ("body_prefill", {"lanes": 8, "layers": range(1, -1, -1)}, "a stretch"),
        ("body_prefill", {"lanes": 8, "layers": 2}, "a stretch"),
        ("gpt2_final_ln", {"lanes": 8}, "not for this family: got llama, want gpt2"),
    ],
)
def test_a_size_of_no_meaning_is_refused_by_name(name, sizes, why):
    with pytest.raises(ConfigError, match=why):
        KERNELS[name](GROUPED, **sizes)


def test_a_name_that_is_no_kernel_s_is_refused_with_the_others_named():
    with pytest.raises(ConfigError, match="no such kernel: got nope, want gpt2_prefill_attn, "):
        KERNELS["nope"]
    assert "nope" not in KERNELS
    assert KERNELS.get("nope") is None


def test_a_kernel_of_the_llama_family_is_not_built_for_gpt2():
    with pytest.raises(ConfigError, match="ffn_bwd: not for this family: got gpt2, want llama"):
        KERNELS["ffn_bwd"](SMALL, layer=0)


@pytest.mark.parametrize("config", [GROUPED, SMALL], ids=["llama", "gpt2"])
def test_layers_may_be_split_over_programs(config):
    parts = [KERNELS["body_prefill"](config, lanes=8, layers=range(i, i + 1)) for i in range(2)]
    whole = KERNELS["body_prefill"](config, lanes=8)
    kept = [set(part.outputs) - {"hidden"} for part in parts]
    assert kept[0] | kept[1] == set(whole.outputs) - {"hidden"}
    assert not kept[0] & kept[1]


def test_a_backward_kernel_s_matrices_are_the_model_s_transposed(rng):
    tensors = random_tensors(GROUPED, rng)
    graph = KERNELS["qkv_bwd"](GROUPED, precision=FP32, layer=LAYER)
    found = for_kernel(graph, GROUPED, tensors, FP32)
    model = Llama(GROUPED).weights(tensors, FP32)
    labels = {f"layers.{LAYER}.w{part}" for part in "qkv"}
    assert set(found) == {f"{label}_t" for label in labels}
    for label in labels:
        assert np.array_equal(found[f"{label}_t"][..., 0, 0], model[label][..., 0, 0].T)


def test_a_kernel_reads_no_more_weights_than_it_needs(rng):
    tensors = random_tensors(SMALL, rng)
    graph = KERNELS["gpt2_decode_ffn"](SMALL, precision=FP32, layer=0)
    needed = {name: tensors[name] for name in tensors if name.startswith("layers.0.")}
    found = for_kernel(graph, SMALL, needed, FP32)
    model = GPT2(SMALL).weights(tensors, FP32)
    assert {label.rpartition(".")[2] for label in found} == {
        "w1",
        "b1",
        "w2",
        "b2",
        "ln2_g",
        "ln2_b",
    }
    assert all(np.array_equal(found[label], model[label]) for label in found)
    del needed["layers.0.b1"]
    with pytest.raises(CheckpointError, match=r"tensors are missing: got .*layers\.0\.b1"):
        for_kernel(graph, SMALL, needed, FP32)


@pytest.mark.parametrize("name", ["head", "classifier_fwd"])
@pytest.mark.parametrize("config", [SMALL, GROUPED], ids=["gpt2", "llama"])
def test_a_vocabulary_longer_than_an_axis_has_several_matrices(name, config, rng, monkeypatch):
    monkeypatch.setattr("orion_ane.models.decoder.MOST_TOKENS", config.vocab // 2)
    tensors = random_tensors(config, rng)
    graph = KERNELS[name](config, precision=FP32, lanes=8)
    found = for_kernel(graph, config, tensors, FP32)
    matrices = [array for array in found.values() if array.shape[0] > 1]
    assert len(graph.outputs) == len(matrices) == 2 + config.vocab % 2
    label = "wte" if config is SMALL else "embed" if config.tied else "head"
    assert np.array_equal(np.concatenate(matrices)[..., 0, 0], tensors[label])


def test_a_vocabulary_over_the_longest_axis_is_softmaxed_over_several_ports(rng):
    config = replace(TOYS["plain"], vocab=70001)
    graph = KERNELS["vocab_softmax"](config, lanes=2)
    assert list(graph.inputs) == ["x_0", "x_1"]
    assert list(graph.outputs) == ["output_0", "output_1"]
    assert not broken(compile_graph(graph, target="strict"))
    scores = rng.standard_normal((1, 70001, 1, 2)).astype(np.float16)
    split = graph.inputs["x_0"].type.shape[1]
    found = evaluate(graph, {"x_0": scores[:, :split], "x_1": scores[:, split:]})
    got = np.concatenate(list(found.values()), axis=1)
    e = np.exp(scores.astype(np.float64))
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=FP16_CHAIN, atol=1e-7)
