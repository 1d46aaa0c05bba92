"""The training kernels shaped by hand give what the forward graphs' derivatives give."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_scenes import FP32, GROUPED, LAYER, PLAIN, Scene, random_tensors
from oracles import evaluate64

from orion_ane.autodiff.reverse import cotangents
from orion_ane.models.paper import KERNELS, for_kernel
from orion_ane.ops import Weight, input_
from orion_ane.ops.linear import Conv1x1
from orion_ane.ops.reduction import Softmax

FP64_SUMS = 1e-12
LANES = 6

LLAMAS = [
    pytest.param(config, turned, id=f"{name}-{'turned' if turned else 'still'}")
    for name, config in {"grouped": GROUPED, "plain": PLAIN}.items()
    for turned in (True, False)
]


def values(graph, tensors, config, fed, *nodes):
    """Nodes of a graph in float64, and those of its derivative, which read the same leaves."""
    weights = for_kernel(graph, config, tensors, FP32)
    known = {n: weights[n.op.label] for n in graph.nodes if isinstance(n.op, Weight)}
    return evaluate64(nodes, {**known, **fed})


def product(graph, which):
    """The product with the matrix `which` of the layer."""
    label = f"layers.{LAYER}.{which}"
    (found,) = [
        n
        for n in graph.nodes
        if isinstance(n.op, Conv1x1) and isinstance(n.args[1].op, Weight)
        if n.args[1].op.label == label
    ]
    return found


def built(name, config):
    sizes = {"layer": LAYER} if "layer" in KERNELS[name].sizes else {}
    return KERNELS[name](config, precision=FP32, lanes=LANES, **sizes)


class Setting:
    """A scene for a config, and what both ways of each gradient give for it."""

    def __init__(self, config, turned):
        rng = np.random.default_rng(7)
        self.config = config
        self.tensors = random_tensors(config, rng)
        self.scene = Scene(
            config,
            self.tensors,
            rng,
            lanes=LANES,
            cached=4,
            rank=2,
            turned=turned,
            whole=False,
        )

    def derived(self, forward, of, seed, inner):
        """Forward values and the cotangents of inner nodes, by reverse mode."""
        graph = built(forward, self.config)
        dy = input_("dy", graph.outputs[of].type)
        found = cotangents(graph, {of: dy})
        fed = {node: self.scene[name] for name, node in graph.inputs.items()}
        fed[dy] = self.scene[seed]
        nodes = inner(graph)
        wanted = [*graph.outputs.values(), *(found[n] for n in nodes)]
        got = values(graph, self.tensors, self.config, fed, *wanted)
        outputs = dict(zip(graph.outputs, got, strict=False))
        return outputs, got[len(graph.outputs) :]

    def shaped(self, name, inp):
        """The outputs of a kernel shaped by hand."""
        graph = built(name, self.config)
        fed = {graph.inputs["inp"]: np.concatenate(inp, axis=1)}
        fed |= {n: self.scene[k] for k, n in graph.inputs.items() if k != "inp"}
        got = values(graph, self.tensors, self.config, fed, *graph.outputs.values())
        return dict(zip(graph.outputs, got, strict=True))


def near(want):
    return pytest.approx(want, rel=FP64_SUMS, abs=FP64_SUMS * np.abs(want).max())


@pytest.mark.parametrize(("config", "turned"), LLAMAS)
def test_the_attention_kernels_are_the_derivative_of_the_forward_kernel(config, turned):
    setting = Setting(config, turned)

    def inner(graph):
        (p,) = [n for n in graph.nodes if isinstance(n.op, Softmax)]
        q, k, v = (product(graph, f"w{part}") for part in "qkv")
        return [graph.outputs["rms1_out"], q, k, v, p]

    forward, (dx, dq, dk, dv, dp) = setting.derived("fwd_attn", "wo_out", "dx2", inner)
    q, k, v = (forward[f"{part}_out"] for part in "qkv")
    first = setting.shaped("sdpa_bwd1", [q, k, v, setting.scene["dx2"]])
    assert first["dvf"] == near(dv)
    assert first["dpf"] == near(dp.reshape(first["dpf"].shape))
    second = setting.shaped("sdpa_bwd2", [first["pf"], first["dpf"], q, k])
    assert second["dqf"] == near(dq)
    assert second["dkf"] == near(dk)
    last = setting.shaped("qkv_bwd", [second["dqf"], second["dkf"], first["dvf"]])
    assert last["dx"] == near(dx)


@pytest.mark.parametrize("config", [GROUPED, PLAIN], ids=["grouped", "plain"])
def test_the_feed_forward_kernel_is_the_derivative_of_the_forward_kernel(config):
    setting = Setting(config, turned=True)

    def inner(graph):
        return [graph.outputs[name] for name in ("rms2_out", "w1_out", "w3_out")]

    forward, derived = setting.derived("fwd_ffn", "w2_out", "dffn", inner)
    dffn = setting.scene["dffn"]
    shaped = setting.shaped("ffn_bwd", [dffn, forward["w1_out"], forward["w3_out"]])
    for name, want in zip(("dx", "dh1", "dh3"), derived, strict=True):
        assert shaped[name] == near(want)


@pytest.mark.parametrize(("config", "turned"), LLAMAS)
def test_the_forward_and_shaped_kernels_agree_with_torch(config, turned):
    """The weights are fp32 in the graph and in torch; all else is float64 on both sides."""
    setting = Setting(config, turned)
    scene = setting.scene
    inputs = {"sdpa_bwd1": "q k v dx2", "sdpa_bwd2": "p dp q k", "qkv_bwd": "dq dk dv"}
    inputs |= {"ffn_bwd": "dffn h1 h3"}
    wanted = {
        "sdpa_bwd1": {"dvf": "dv", "pf": "p", "dpf": "dp"},
        "sdpa_bwd2": {"dqf": "dq", "dkf": "dk"},
        "qkv_bwd": {"dx": "dh1_norm"},
        "ffn_bwd": {"dx": "dh2_norm", "dh1": "dh1", "dh3": "dh3"},
    }
    for name, ports in wanted.items():
        got = setting.shaped(name, [scene[part] for part in inputs[name].split()])
        for port, value in ports.items():
            want = scene[value]
            assert got[port] == pytest.approx(want, abs=1e-7 * np.abs(want).max()), (name, port)
