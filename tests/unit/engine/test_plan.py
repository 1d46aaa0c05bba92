"""Plans mean what their graphs mean, whatever the threads, the lanes and the run."""

from __future__ import annotations

import gc
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from oracles import evaluate64

from orion_ane.engine.known import Known
from orion_ane.engine.plan.build import Builder, NoCommand
from orion_ane.engine.plan.layout import Kind
from orion_ane.engine.plan.plan import Plan, plan
from orion_ane.engine.threads import Threads
from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, Node, Op
from orion_ane.models.build import decoder_of
from orion_ane.models.config import GPT2Config, LlamaConfig
from orion_ane.nn.blocks import Precision
from orion_ane.ops import (
    Weight,
    clip,
    concat,
    const,
    conv1x1,
    evaluate,
    exp,
    greater_equal,
    identity,
    input_,
    matmul,
    maximum,
    pad,
    reduce_max,
    reduce_mean,
    reduce_sum,
    relu,
    reshape,
    rsqrt,
    select,
    sigmoid,
    slice_by_index,
    softmax,
    sqrt,
    tanh,
    transpose,
    weight,
)
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
SUMS = frozenset({"conv1x1", "matmul", "reduce_sum", "reduce_mean", "softmax"})
CURVES = frozenset({"exp", "tanh", "sigmoid"})
COMMANDS = frozenset(
    {"add", "sub", "mul", "real_div", "maximum", "greater_equal", "select", "relu", "clip", "neg"}
    | {"sqrt", "rsqrt", "cast", "identity", "reshape", "transpose", "slice", "concat", "pad"}
    | {"reduce_max"}
)
FP32_CHAIN = 1e-4
"""fp32 against float64 over some tens of ops on values up to `strategies.LIMIT`."""
CURVE_TIES = 2.0**-10
"""One step of fp16: numpy's curves are up to 3 steps of fp32 off, which may pass a tie."""
WEIGHTS_ARE_SMALL = 0.1
HALVES = Precision(FP16, FP16)
MIXED = Precision(FP32, FP16)
LLAMA = LlamaConfig(
    vocab=97, context=128, dim=64, layers=2, heads=8, kv_heads=4, head_dim=8, hidden=172, tied=True
)
GPT2 = GPT2Config(vocab=97, context=128, dim=64, layers=2, heads=4, hidden=172)


def planned(graph: Graph, arrays, *, rounds: bool, threads: int = 2) -> Plan:
    leaves = [node.op for node in graph.nodes if isinstance(node.op, Weight)]
    weights = {leaf: arrays[leaf.label] for leaf in leaves}
    return plan(graph, weights, rounds=rounds, threads=Threads(threads))


def drawn(graph: Graph, rng, scale: float = 1.0):
    """Values for the inputs and weights of a graph."""

    def normal(of: TensorType, size: float):
        return (rng.standard_normal(of.shape) * size).astype(of.dtype.numpy)

    feed = {name: normal(node.type, scale) for name, node in graph.inputs.items()}
    leaves = [node.op for node in graph.nodes if isinstance(node.op, Weight)]
    return feed, {leaf.label: normal(leaf.of, WEIGHTS_ARE_SMALL) for leaf in leaves}


def programs(precision: Precision, lanes: int):
    """A model's programs in one bucket."""
    for config in (LLAMA, GPT2):
        decoder = decoder_of(config)
        for cached in (0, 64):
            yield decoder.body(range(2), lanes=lanes, cached=cached, precision=precision)
        yield decoder.head(lanes=lanes, precision=precision)


# What a plan means


@given(st.data())
def test_fp16_plans_have_the_bits_of_the_meaning_where_nothing_is_summed(data):
    graph = data.draw(strategies.graphs(rows=COMMANDS, dtypes=(FP16, FP32)))
    feed, weights = data.draw(strategies.feeds(graph)), data.draw(strategies.weight_feeds(graph))
    try:
        got = planned(graph, weights, rounds=True).run(feed)
    except NoCommand:
        return
    want = evaluate(graph, feed, weights)
    assert list(got) == list(want)
    for name in want:
        assert TensorType.of(got[name]) == TensorType.of(want[name])
        np.testing.assert_array_equal(got[name], want[name])


@given(st.data())
def test_fp32_plans_round_at_no_op(data):
    graph = data.draw(
        strategies.graphs(smooth=True, rows=COMMANDS | SUMS | CURVES, dtypes=(FP16, FP32))
    )
    feed, weights = data.draw(strategies.feeds(graph)), data.draw(strategies.weight_feeds(graph))
    try:
        got = planned(graph, weights, rounds=False).run(feed)
    except NoCommand:
        return
    leaves = {graph.inputs[name]: value for name, value in feed.items()}
    leaves |= {n: weights[n.op.label] for n in graph.nodes if isinstance(n.op, Weight)}
    for (name, y), exact in zip(
        got.items(), evaluate64(graph.outputs.values(), leaves), strict=True
    ):
        assert TensorType.of(y) == graph.outputs[name].type
        half = 2.0**-11 * abs(exact) + 2.0**-25 if y.dtype == np.float16 else 0
        assert np.all(abs(y - exact) <= half + FP32_CHAIN * np.maximum(abs(exact), 1))


def test_each_step_of_a_tape_rounds(rng):
    x, y = (input_(name, TensorType(FP16, (3, 1000))) for name in "xy")
    z = (x * y + x) / y - x * x
    graph = Graph({"x": x, "y": y}, {"z": z})
    feed, _ = drawn(graph, rng)
    made = planned(graph, {}, rounds=True)
    assert len(made.code.commands) == 1
    want = evaluate(graph, feed)["z"]
    np.testing.assert_array_equal(made.run(feed)["z"], want)
    assert np.any(planned(graph, {}, rounds=False).run(feed)["z"] != want)


def test_a_piece_of_a_joined_value_is_read_when_all_of_it_is_there(rng):
    n = 3000  # some blocks
    x, y = (input_(name, TensorType(FP16, (n,))) for name in "xy")
    both = concat(x + y, x - y, axis=0)
    graph = Graph({"x": x, "y": y}, {"z": slice_by_index(both, (5,), (n + 5,)) + x})
    feed, _ = drawn(graph, rng)
    got = planned(graph, {}, rounds=True).run(feed)["z"]
    np.testing.assert_array_equal(got, evaluate(graph, feed)["z"])


def test_threads_meet_where_one_reads_what_another_wrote():
    x = input_("x", TensorType(FP32, (2, 4, 64, 64)))
    product = matmul(x, x)

    def phases(y: Node) -> list[int]:
        commands = planned(Graph({"x": x}, {"y": exp(y)}), {}, rounds=False).code.commands
        return [command.phase for command in commands if command.units == 8]

    assert phases(transpose(product, (0, 1, 3, 2))) == [0, 0, 0], "each its own matrices"
    assert phases(transpose(product, (1, 0, 2, 3))) in ([0, 0], [0, 0, 1])


@pytest.mark.parametrize("curve", [exp, tanh, sigmoid])
def test_curves_are_right_at_every_fp16_value(curve):
    x = input_("x", TensorType(FP16, (1 << 16,)))
    graph = Graph({"x": x}, {"y": curve(x)})
    feed = {"x": np.arange(1 << 16, dtype=np.uint16).view(np.float16)}
    got, want = planned(graph, {}, rounds=True).run(feed)["y"], evaluate(graph, feed)["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=CURVE_TIES, atol=2.0**-24)
    assert np.count_nonzero(got != want) <= 2 * np.count_nonzero(np.isnan(want)) + 64


@pytest.mark.parametrize("dtype", [FP16, FP32])
def test_of_infinities_zeros_of_both_signs_and_what_is_no_number_each_op_makes_what_it_means(dtype):
    values = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504], dtype.numpy)
    feed = dict(zip("xy", (np.ravel(side) for side in np.meshgrid(values, values)), strict=True))
    x, y = (input_(name, TensorType(dtype, (values.size**2,))) for name in "xy")
    made = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "max": maximum(x, y)}
    made |= {"least": select(greater_equal(x, y), x, y), "relu": relu(x), "neg": -x}
    made |= {"clip": clip(x, -1, 2), "sqrt": sqrt(x), "rsqrt": rsqrt(x, 1e-3)}
    graph = Graph({"x": x, "y": y}, made)
    with np.errstate(all="ignore"):
        want = evaluate(graph, feed)
    got = planned(graph, {}, rounds=True).run(feed)
    for name, found in got.items():
        np.testing.assert_array_equal(found, want[name], name)
        known = ~np.isnan(found)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(want[name])[known], name)


@pytest.mark.parametrize("fold", [reduce_sum, reduce_mean, reduce_max])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_reductions_over_any_axes_agree(fold, axes, rng):
    x = input_("x", TensorType(FP32, (3, 130, 70)))
    graph = Graph({"x": x}, {"y": fold(x, axes)})
    feed = {"x": rng.standard_normal((3, 130, 70), dtype=np.float32)}
    got, want = planned(graph, {}, rounds=False).run(feed)["y"], evaluate(graph, feed)["y"]
    np.testing.assert_allclose(got, want, atol=FP32_CHAIN)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_along_any_axis_agrees_and_an_all_masked_row_is_zeros(axis, rng):
    x = input_("x", TensorType(FP32, (4, 65, 7)))
    graph = Graph({"x": x}, {"y": softmax(x, axis)})
    feed = {"x": rng.standard_normal((4, 65, 7), dtype=np.float32)}
    feed["x"][(slice(None), 0, 0) if axis == 0 else (0, slice(None), 0)] = -np.inf
    got, want = planned(graph, {}, rounds=False).run(feed)["y"], evaluate(graph, feed)["y"]
    np.testing.assert_allclose(got, want, atol=FP32_CHAIN)


@pytest.mark.parametrize("tx", [False, True])
@pytest.mark.parametrize("ty", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "m", "n", "k"),
    [
        ((2, 3), (1, 3), 5, 7, 70),
        ((3,), (), 1, 130, 9),
        ((), (2,), 33, 1, 64),
        ((1, 2), (2, 1), 112, 144, 128),
    ],
)
def test_products_of_two_values_agree(left, right, m, n, k, tx, ty, rng):
    def side(batch, rows, columns, turned):
        return (*batch, columns, rows) if turned else (*batch, rows, columns)

    x = input_("x", TensorType(FP32, side(left, m, k, tx)))
    y = input_("y", TensorType(FP16, side(right, k, n, ty)))
    z = matmul(x, Node(Op.table["cast"](FP32), (y,)), tx=tx, ty=ty)
    graph = Graph({"x": x, "y": y}, {"z": z})
    feed, _ = drawn(graph, rng)
    got, want = planned(graph, {}, rounds=False).run(feed)["z"], evaluate(graph, feed)["z"]
    np.testing.assert_allclose(got, want, atol=1e-6 * k * 4)


@pytest.mark.parametrize("columns", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize(("inner", "outer"), [(64, 172), (130, 3), (250, 640)])
def test_products_with_a_weight_agree_at_any_width(columns, dtype, inner, outer, rng):
    x = input_("x", TensorType(FP32, (1, inner, 1, columns)))
    w = weight("w", TensorType(dtype, (outer, inner, 1, 1)))
    wide_w = w if dtype is FP32 else Node(Op.table["cast"](FP32), (w,))
    graph = Graph({"x": x}, {"y": conv1x1(x, wide_w)})
    feed, weights = drawn(graph, rng)
    got = planned(graph, weights, rounds=False).run(feed)["y"]
    np.testing.assert_allclose(got, evaluate(graph, feed, weights)["y"], atol=1e-5)


def test_moved_cut_and_joined_values_agree(rng):
    x, y = (input_(name, TensorType(FP16, (2, 6, 5))) for name in "xy")
    moved = transpose(x, (2, 0, 1))
    part = slice_by_index(moved, (1, 0, 2), (4, 2, 6))
    joined = concat(part, part + part, axis=1)
    padded = pad(joined, (1, 0, 2), (0, 3, 1))
    outputs = {"a": padded, "b": exp(padded) * padded, "c": transpose(padded, (1, 2, 0))}
    outputs |= {"d": identity(x), "e": reshape(transpose(y, (1, 0, 2)), (60,))}
    graph = Graph({"x": x, "y": y}, outputs)
    feed, _ = drawn(graph, rng)
    got, want = planned(graph, {}, rounds=True).run(feed), evaluate(graph, feed)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=CURVE_TIES)


# What does not show


@pytest.mark.parametrize("lanes", [1, 32])
@pytest.mark.parametrize("precision", [HALVES, MIXED])
def test_the_number_of_threads_does_not_show(lanes, precision, rng):
    for graph in programs(precision, lanes):
        feed, weights = drawn(graph, rng)
        results = [
            planned(graph, weights, rounds=precision is HALVES, threads=threads).run(feed)
            for threads in (1, 2, 3, 2)
        ]
        for other in results[1:]:
            for name, value in results[0].items():
                np.testing.assert_array_equal(value, other[name])


def test_runs_of_few_threads_and_of_many_take_turns(rng):
    w = weight("w", TensorType(FP16, (512, 256, 1, 1)))
    x = input_("x", TensorType(FP16, (1, 256, 1, 1)))
    graph = Graph({"x": x}, {"y": conv1x1(x, w)})
    feed, weights = drawn(graph, rng)
    plans = [planned(graph, weights, rounds=True, threads=count) for count in (4, 1, 2, 3)]
    assert plans[0].count == 4
    want = plans[1].run(feed)["y"]
    found = np.empty_like(want)
    bound = [made.bind(feed, {"y": found}) for made in plans]
    for _ in range(100):
        for run in bound:
            feed["x"] *= -1  # else what is not computed is there from the run before
            want *= -1
            run.run()
            np.testing.assert_array_equal(found, want)


def test_plans_may_be_run_by_many_threads_with_more_threads_than_processors(rng):
    graph = decoder_of(LLAMA).body(range(2), lanes=32, cached=64, precision=MIXED)
    feed, weights = drawn(graph, rng)
    plans = [planned(graph, weights, rounds=False, threads=count) for count in (2, 16)]
    want = plans[0].run(feed)

    def run(made: Plan) -> bool:
        found = [made.run(feed) for _ in range(5)]
        return all(np.array_equal(got[name], want[name]) for got in found for name in want)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, plans * 2))


@pytest.mark.parametrize("lanes", [5, 32])
@pytest.mark.parametrize("precision", [HALVES, MIXED])
def test_a_lane_does_not_see_what_fills_the_others_nor_where_it_is(lanes, precision, rng):
    config = LLAMA
    graph = decoder_of(config).body(range(2), lanes=lanes, cached=64, precision=precision)
    feed, weights = drawn(graph, rng)
    dtype = precision.compute.numpy
    feed["mask"] = np.where(np.eye(lanes), 0, -1e4).astype(dtype)[None, None]
    first = planned(graph, weights, rounds=precision is HALVES)
    want = first.run(feed)
    order = rng.permutation(lanes)
    moved = dict(feed)
    for name in ("x", "cos", "sin"):
        moved[name] = np.ascontiguousarray(feed[name][..., order])
    moved["mask_cache"] = np.ascontiguousarray(feed["mask_cache"][:, :, order])
    got = first.run(moved)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name][..., order])


def test_fused_steps_have_the_bits_of_single_ones(monkeypatch, rng):
    for graph in programs(HALVES, 32):
        feed, weights = drawn(graph, rng)
        want = planned(graph, weights, rounds=True).run(feed)
        with monkeypatch.context() as patch:
            patch.setattr("orion_ane.engine.plan.fuse.MAX_STEPS", 1)
            got = planned(graph, weights, rounds=True).run(feed)
        for name in want:
            np.testing.assert_array_equal(got[name], want[name])


# What it costs


@pytest.mark.parametrize("lanes", [1, 32, 128])
@pytest.mark.parametrize("precision", [HALVES, MIXED])
def test_every_op_of_a_model_has_a_command(lanes, precision, rng):
    for graph in programs(precision, lanes):
        _, weights = drawn(graph, rng)
        planned(graph, weights, rounds=precision is HALVES)


def test_an_op_without_a_command_is_told_when_it_is_lowered():
    x = input_("x", TensorType(DType.INT32, (2,)))
    with pytest.raises(NoCommand):
        Builder(Graph({"x": x}, {"y": x + x}), Known({}, rounds=True)).build()


def test_decoding_has_a_command_of_its_own_for_each_product_and_few_waits(rng):
    graph = decoder_of(LLAMA).body(range(2), lanes=1, cached=64, precision=MIXED)
    _, weights = drawn(graph, rng)
    code = planned(graph, weights, rounds=False).code
    assert sum(command.kind is Kind.ROWS for command in code.commands) == 7 * 2


@pytest.mark.parametrize(("m", "n"), [(5, 172), (4, 200), (13, 65), (8, 128)])
def test_as_many_units_as_blocks_are_still_those_of_what_is_read(m, n, rng):
    """Scores [2,2,m,n] are 4 matrices and as many blocks of 1024, which are not the same."""
    shapes = {"q": (2, 2, m, 16), "k": (2, 2, n, 16), "v": (2, 2, n, 16)}
    port = {name: input_(name, TensorType(FP32, shape)) for name, shape in shapes.items()}
    scores = matmul(port["q"], port["k"], ty=True) * const(0.25, FP32)
    graph = Graph(port, {"y": matmul(softmax(scores, -1), port["v"])})
    feed, _ = drawn(graph, rng)
    want = evaluate(graph, feed, {})["y"]
    for _ in range(5):
        found = planned(graph, {}, rounds=False).run(feed)["y"]
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-4)


def test_runs_keep_no_memory(rng):
    graph = decoder_of(LLAMA).body(range(2), lanes=32, cached=64, precision=MIXED)
    feed, weights = drawn(graph, rng)
    made = planned(graph, weights, rounds=False)
    outputs = {n: np.empty(v.type.shape, v.type.dtype.numpy) for n, v in graph.outputs.items()}
    bound = made.bind(feed, outputs)
    bound.run()
    tracemalloc.start()
    try:
        held = []
        for _ in range(3):
            for _ in range(20):
                bound.run()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        assert held[2] - held[1] < 1 << 16, "twenty runs, less than one of their values each"
    finally:
        tracemalloc.stop()


def test_a_bound_plan_reads_its_inputs_where_they_are(rng):
    x = input_("x", TensorType(FP32, (1, 64, 1, 1)))
    graph = Graph({"x": x}, {"y": conv1x1(x, weight("w", TensorType(FP32, (172, 64, 1, 1))))})
    feed, weights = drawn(graph, rng)
    outputs = {"y": np.empty((1, 172, 1, 1), np.float32)}
    made = planned(graph, weights, rounds=False)
    bound = made.bind(feed, outputs)
    for _ in range(2):
        bound.run()
        np.testing.assert_array_equal(outputs["y"], made.run(feed)["y"])
        feed["x"][...] += 1


@pytest.mark.parametrize(("family", "precision"), [(LLAMA, HALVES), (GPT2, MIXED)])
def test_what_is_known_to_be_zeros_is_not_read_and_does_not_show(family, precision, rng):
    graph = decoder_of(family).body(range(2), lanes=1, cached=160, precision=precision)
    feed, weights = drawn(graph, rng)
    made = planned(graph, weights, rounds=precision is HALVES)
    caches = [name for name in feed if name[1:].startswith("_cache_")]
    outputs = {n: np.empty(v.type.shape, v.type.dtype.numpy) for n, v in graph.outputs.items()}
    bound = made.bind(feed, outputs, growing=caches)
    for filled in (0, 1, 70, 160):
        for name in caches:
            feed[name][..., filled:] = 0
        feed["mask_cache"][...] = np.where(np.arange(160) < filled, 0, -1e4)
        want = made.run(feed)
        for name in caches:  # whole stretches are read, and no more
            feed[name][..., -(-filled // 64) * 64 :] = np.nan
        bound.run(filled)
        for name in want:
            np.testing.assert_array_equal(outputs[name], want[name])
        for name in caches:
            feed[name][...] = drawn(graph, rng)[0][name]


def test_other_weights_need_no_lowering(rng):
    graph = next(iter(programs(HALVES, 32)))
    feed, weights = drawn(graph, rng)
    _, others = drawn(graph, rng)
    leaves = {n.op: others[n.op.label] for n in graph.nodes if isinstance(n.op, Weight)}
    made = planned(graph, weights, rounds=True)
    renewed = made.with_weights(leaves)
    assert renewed.code is made.code
    want = planned(graph, others, rounds=True).run(feed)
    got = renewed.run(feed)
    assert any(np.any(want[name] != made.run(feed)[name]) for name in want)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    leaf = next(iter(leaves))
    with pytest.raises(ShapeError, match=r"no fitting value"):
        made.with_weights(leaves | {leaf: np.zeros(3, np.float16)})


def test_a_large_weight_is_read_where_it_lies(rng):
    x = input_("x", TensorType(FP16, (1, 64, 1, 1)))
    graph = Graph({"x": x}, {"y": conv1x1(x, weight("w", TensorType(FP16, (172, 64, 1, 1))))})
    feed, weights = drawn(graph, rng)
    made = planned(graph, weights, rounds=True)
    before = made.run(feed)["y"]
    weights["w"][...] *= 2
    np.testing.assert_array_equal(made.run(feed)["y"], 2 * before)
    assert any(np.shares_memory(array, weights["w"]) for array in made.constants)
