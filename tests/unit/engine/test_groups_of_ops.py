"""One token's attention and rotary positions: a command each, which means what its ops mean."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import evaluate64

from orion_ane.engine.plan import patterns
from orion_ane.engine.plan.layout import Kind
from orion_ane.engine.plan.plan import plan
from orion_ane.engine.threads import Threads
from orion_ane.ir import Graph
from orion_ane.nn.blocks import MASKED, Cache, attention, layer_norm, rms_norm, rotate
from orion_ane.ops import (
    evaluate,
    exp,
    input_,
    matmul,
    maximum,
    reduce_max,
    reduce_sum,
    reshape,
)
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
CACHES = ("k_cache", "v_cache")
SUMS = {FP32: 1e-6, FP16: 2.0**-8}
"""Of values about 1: fp32 sums of some hundreds, or a few steps of fp16."""


def attending(dtype: DType, groups: int, heads: int, depth: int, room: int) -> Graph:
    shapes = {"q": (groups, heads, depth, 1), "k": (1, heads, depth, 1), "v": (1, heads, depth, 1)}
    shapes |= dict.fromkeys(CACHES, (1, heads * depth, 1, room))
    shapes |= {"mask": (1, 1, 1, 1), "mask_cache": (1, 1, 1, room)}
    port = {name: input_(name, TensorType(dtype, shape)) for name, shape in shapes.items()}
    k, v = (reshape(port[name], (1, heads, depth, room)) for name in CACHES)
    cache = Cache(k, v, port["mask_cache"])
    y = attention(port["q"], port["k"], port["v"], mask=port["mask"], cache=cache)
    return Graph(port, {"y": y})


def fed(graph: Graph, filled: int, rng):
    feed = {
        name: rng.standard_normal(node.type.shape).astype(node.type.dtype.numpy)
        for name, node in graph.inputs.items()
    }
    for name in CACHES:
        feed[name][..., filled:] = 0
    feed["mask"][...] = 0
    feed["mask_cache"][...] = 0
    feed["mask_cache"][..., filled:] = MASKED[graph.inputs["q"].type.dtype]
    return feed


def meant(graph: Graph, feed):
    """The outputs in float64."""
    ends = list(graph.outputs)
    fed = {node: feed[name] for name, node in graph.inputs.items()}
    return dict(zip(ends, evaluate64(graph.outputs.values(), fed), strict=True))


def by_position(array):
    """The same values with a position's channels side by side."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, 0)), 0, -1)


@given(
    dtype=st.sampled_from([FP16, FP32]),
    groups=st.integers(1, 3),
    heads=st.integers(1, 5),
    depth=st.sampled_from([1, 7, 16, 20, 64, 80, 130]),
    room=st.sampled_from([1, 32, 64, 96, 160]),
    part=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_attention_of_one_token_is_one_command(dtype, groups, heads, depth, room, part, seed):
    graph = attending(dtype, groups, heads, depth, room)
    filled = round(part * room)
    feed = fed(graph, filled, np.random.default_rng(seed))
    made = plan(graph, {}, rounds=dtype is FP16, threads=Threads(1))
    kinds = [command.kind for command in made.code.commands]
    assert [kind for kind in kinds if kind is not Kind.TAPE] == [Kind.ATTEND]
    found = made.run(feed)["y"]
    want = meant(graph, feed)["y"]
    np.testing.assert_allclose(found, want, rtol=0, atol=SUMS[dtype])

    laid = feed | {name: by_position(feed[name]) for name in CACHES}
    for arrays in (laid, feed):
        out = {"y": np.empty_like(found)}
        bound = plan(graph, {}, rounds=dtype is FP16, threads=Threads(3)).bind(arrays, out, CACHES)
        bound.run(filled)
        np.testing.assert_array_equal(out["y"], found, "layout, threads, and what is known")


def test_a_cache_by_position_is_read_where_it_is_and_any_other_at_each_run(rng):
    graph = attending(FP32, 1, 2, 16, 64)
    feed, made = fed(graph, 9, rng), plan(graph, {}, rounds=False, threads=Threads(1))
    laid = feed | {name: by_position(feed[name]) for name in CACHES}
    outs = [{"y": np.empty((1, 2, 16, 1), np.float32)} for _ in range(2)]
    bound = [made.bind(ins, out, CACHES) for ins, out in zip((feed, laid), outs, strict=True)]
    for _ in range(2):
        for run, out in zip(bound, outs, strict=True):
            run.run(9)
            np.testing.assert_array_equal(out["y"], made.run(feed)["y"])
        for name in CACHES:
            feed[name][..., 8] += 1
            laid[name][...] = feed[name]


def test_caches_that_do_not_grow_are_read_as_they_are_at_each_run(rng):
    graph = attending(FP32, 1, 2, 16, 64)
    feed, made = fed(graph, 64, rng), plan(graph, {}, rounds=False, threads=Threads(1))
    out = {"y": np.empty((1, 2, 16, 1), np.float32)}
    for growing in ((), CACHES[:1], CACHES[1:]):
        bound = made.bind(feed, out, growing)
        for _ in range(2):
            bound.run(9)
            np.testing.assert_array_equal(out["y"], made.run(feed)["y"], str(growing))
            for name in set(CACHES) - set(growing):
                feed[name] += 1


def other_attentions():
    """Graphs that almost are one token's attention."""
    port = {
        "q": (2, 8, 8, 1), "k": (1, 8, 8, 1), "v": (1, 8, 8, 1), "mask": (1, 1, 1, 1),
        "k_cache": (1, 64, 1, 32), "v_cache": (1, 64, 1, 32), "mask_cache": (1, 1, 1, 32),
    }  # fmt: skip
    inputs = {name: input_(name, TensorType(FP32, shape)) for name, shape in port.items()}
    q, k, v, mask, k_cache, v_cache, mask_cache = inputs.values()
    k_cache, v_cache = (reshape(cache, (1, 8, 8, 32)) for cache in (k_cache, v_cache))
    for maxima, sums, shape in [
        ((3,), (0, 3), None),
        ((3,), (1, 3), None),
        ((0, 1, 2, 3), (3,), None),
        ((3,), (0, 3), (1, 1, 8, 1)),
        ((3,), (0, 3), (1, 1, 1, 8)),
    ]:
        new, old = matmul(q, k, tx=True) + mask, matmul(q, k_cache, tx=True) + mask_cache
        top = maximum(reduce_max(old, maxima), reduce_max(new, maxima))
        new, old = exp(new - top), exp(old - top)
        total = reduce_sum(old, sums) + reduce_sum(new, sums)
        mixed = matmul(v_cache, old, ty=True) + matmul(v, new, ty=True)
        yield Graph(inputs, {"y": mixed / (total if shape is None else reshape(total, shape))})


@pytest.mark.parametrize("graph", list(other_attentions()))
def test_what_is_only_like_an_attention_is_computed_as_it_is_written(graph, rng):
    feed = {n: rng.standard_normal(i.type.shape, np.float32) for n, i in graph.inputs.items()}
    found = plan(graph, {}, rounds=False, threads=Threads(1)).run(feed)["y"]
    np.testing.assert_allclose(found, meant(graph, feed)["y"], rtol=0, atol=1e-5)


def test_scores_that_are_read_elsewhere_are_computed(rng):
    graph = attending(FP32, 1, 2, 16, 64)
    scores = next(n for n in graph.nodes if n.type.shape == (1, 2, 1, 64) and n.op.name == "add")
    graph = Graph(graph.inputs, {**graph.outputs, "scores": scores})
    feed = fed(graph, 30, rng)
    found = plan(graph, {}, rounds=False, threads=Threads(1)).run(feed)
    for name, want in meant(graph, feed).items():
        np.testing.assert_allclose(found[name], want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lanes", [1, 3, 32])
@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize("heads", [(1,), (3, 5)])
def test_a_rotation_is_one_command_with_the_bits_of_its_ops(dtype, heads, lanes, rng):
    shapes = {"x": (*heads, 10, lanes), "cos": (*(1,) * len(heads), 10, lanes)}
    shapes["sin"] = shapes["cos"]
    port = {name: input_(name, TensorType(dtype, shape)) for name, shape in shapes.items()}
    graph = Graph(port, {"y": rotate(port["x"], port["cos"], port["sin"])})
    feed = {n: rng.standard_normal(s).astype(dtype.numpy) for n, s in shapes.items()}
    made = plan(graph, {}, rounds=dtype is FP16, threads=Threads(2))
    assert [c.kind for c in made.code.commands].count(Kind.ROTATE) == 1
    np.testing.assert_array_equal(made.run(feed)["y"], evaluate(graph, feed, {})["y"])


def test_in_fp16_attention_rounds_where_its_ops_do(rng):
    """Of one channel and one position nothing is summed that fp32 does not hold."""
    graph = attending(FP16, 2, 300, 1, 1)
    feed = fed(graph, 1, rng)
    made = plan(graph, {}, rounds=True, threads=Threads(1))
    assert Kind.ATTEND in [command.kind for command in made.code.commands]
    np.testing.assert_array_equal(made.run(feed)["y"], evaluate(graph, feed, {})["y"])


@pytest.mark.parametrize("shape", [(1, 768, 1, 1), (1, 20, 1, 3), (2, 64, 1, 64), (1, 172, 1, 100)])
@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize("is_layer", [False, True])
def test_a_norm_is_one_command_with_the_bits_of_its_ops(is_layer, dtype, shape, rng):
    channels = (1, shape[1], 1, 1)
    shapes = {"x": shape, "gain": channels, "bias": channels}
    port = {name: input_(name, TensorType(dtype, of)) for name, of in shapes.items()}
    x, gain, bias = port.values()
    y = layer_norm(x, gain, bias, 1e-5) if is_layer else rms_norm(x, gain, 1e-5)
    graph = Graph(port, {"y": y})
    feed = {n: rng.standard_normal(s).astype(dtype.numpy) for n, s in shapes.items()}
    feed["x"] *= np.where(np.arange(shape[-1]) % 2, 300, 1e-3).astype(dtype.numpy)
    made = plan(graph, {}, rounds=dtype is FP16, threads=Threads(2))
    kinds = [command.kind for command in made.code.commands]
    assert [kind for kind in kinds if kind is not Kind.TAPE] == [Kind.NORM]
    with mock.patch.object(patterns, "_found", return_value=()):
        apart = plan(graph, {}, rounds=dtype is FP16, threads=Threads(1))
    assert Kind.NORM not in [command.kind for command in apart.code.commands]
    np.testing.assert_array_equal(made.run(feed)["y"], apart.run(feed)["y"])
    for value in (np.nan, np.inf, 0):
        feed["x"][..., 0] = value
        np.testing.assert_array_equal(made.run(feed)["y"], apart.run(feed)["y"])
