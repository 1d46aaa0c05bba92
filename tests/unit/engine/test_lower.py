"""Tapes mean what their graphs mean, and hold no more than they must."""

from __future__ import annotations

import sys
import weakref

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from oracles import evaluate64

from orion_ane.engine import functions, lower, threads
from orion_ane.errors import ConfigError, ShapeError
from orion_ane.ir import Graph, Op
from orion_ane.ops import (
    Weight,
    cast,
    const,
    conv1x1,
    evaluate,
    exp,
    identity,
    input_,
    reshape,
    slice_by_index,
    tanh,
    transpose,
    weight,
)
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
SUMS = frozenset({"conv1x1", "matmul", "reduce_sum", "reduce_mean", "softmax"})
FP32_CHAIN = 1e-4
"""fp32 against float64 over some tens of ops on values up to `strategies.LIMIT`."""


def weights_of(graph: Graph, feed: dict[str, np.ndarray]) -> dict[Weight, np.ndarray]:
    leaves = [node.op for node in graph.nodes if isinstance(node.op, Weight)]
    return {leaf: feed[leaf.label] for leaf in leaves}


@given(st.data())
def test_fp16_numerics_have_the_bits_of_the_meaning_where_nothing_is_summed(data):
    graph = data.draw(strategies.graphs(rows=frozenset(Op.table) - SUMS))
    feed, weights = data.draw(strategies.feeds(graph)), data.draw(strategies.weight_feeds(graph))
    want = evaluate(graph, feed, weights)
    got = lower(graph, weights_of(graph, weights), numerics="fp16").run(feed)
    assert list(got) == list(want)
    for name in want:
        assert TensorType.of(got[name]) == TensorType.of(want[name])
        np.testing.assert_array_equal(got[name], want[name])


@given(st.data())
def test_fp32_numerics_round_at_no_op(data):
    graph = data.draw(strategies.graphs(smooth=True, dtypes=(FP16, FP32)))
    feed, weights = data.draw(strategies.feeds(graph)), data.draw(strategies.weight_feeds(graph))
    got = lower(graph, weights_of(graph, weights), numerics="fp32").run(feed)
    leaves = {graph.inputs[name]: value for name, value in feed.items()}
    leaves |= {n: weights[n.op.label] for n in graph.nodes if isinstance(n.op, Weight)}
    want = evaluate64(graph.outputs.values(), leaves)
    for (name, y), exact in zip(got.items(), want, strict=True):
        assert TensorType.of(y) == graph.outputs[name].type
        half = 2.0**-11 * abs(exact) + 2.0**-25 if y.dtype == np.float16 else 0
        assert np.all(abs(y - exact) <= half + FP32_CHAIN * np.maximum(abs(exact), 1))


def test_a_sum_leaves_fp16_only_at_an_fp16_port():
    """Case N15: 33 × 1000."""
    x = input_("x", TensorType(FP16, (1, 33, 1, 1)))
    y = conv1x1(x, weight("w", TensorType(FP16, (1, 33, 1, 1))))
    graph = Graph({"x": x}, {"half": y, "single": cast(y, FP32)})
    (leaf,) = weights_of(graph, {"w": np.empty(0)})
    w, ones = np.full((1, 33, 1, 1), 1000, np.float16), np.ones((1, 33, 1, 1), np.float16)
    y = lower(graph, {leaf: w}, numerics="fp32").run({"x": ones})
    assert (y["half"].item(), y["single"].item()) == (32992, 33000)
    y = lower(graph, {leaf: w}, numerics="fp16").run({"x": ones})
    assert (y["half"].item(), y["single"].item()) == (32992, 32992)


def test_a_cast_to_fp16_rounds_where_fp16_is_stored():
    x = input_("x", TensorType(FP32, (2,)))
    graph = Graph({"x": x}, {"y": cast(cast(x, FP16), FP32)})
    fed = np.array([1 + 2.0**-12, 70000], np.float32)
    assert lower(graph, {}, numerics="fp16").run({"x": fed})["y"].tolist() == [1, np.inf]
    assert lower(graph, {}, numerics="fp32").run({"x": fed})["y"].tolist() == fed.tolist()


def test_integers_and_bools_are_untouched(rng):
    types = [TensorType(dtype, (7,)) for dtype in DType if not dtype.is_float]
    inputs = {f"x{i}": input_(f"x{i}", of) for i, of in enumerate(types)}
    graph = Graph(inputs, {f"y{i}": identity(node) for i, node in enumerate(inputs.values())})
    feed = {name: strategies.values(x.type, rng, -100, 100) for name, x in inputs.items()}
    for numerics in ("fp16", "fp32"):
        y = lower(graph, {}, numerics=numerics).run(feed)
        for i, x in enumerate(feed.values()):
            assert y[f"y{i}"].dtype == x.dtype
            np.testing.assert_array_equal(y[f"y{i}"], x)


# What a run hands out and keeps


def looks(x):
    """Outputs that could be views of an input, a weight or each other."""
    w = weight("w", TensorType(FP32, (4, 6)))
    y = tanh(x)
    moved = transpose(x, (1, 0))
    return {
        "same": identity(x),
        "moved": moved,
        "curved": exp(moved),  # numpy keeps the order of the axes in memory
        "part": slice_by_index(x, (0, 0), (2, 6)),
        "weight": identity(w),
        "y": y,
        "y_again": y,
        "y_part": slice_by_index(y, (0, 0), (1, 6)),
        "y_moved": transpose(y, (1, 0)),
        "flat": reshape(y, (24,)),
    }


@pytest.mark.parametrize("numerics", ["fp16", "fp32"])
def test_outputs_are_new_packed_arrays(numerics, rng):
    x = input_("x", TensorType(FP32, (4, 6)))
    graph = Graph({"x": x}, looks(x))
    feed = {"x": rng.standard_normal((4, 6), dtype=np.float32)}
    w = rng.standard_normal((4, 6), dtype=np.float32)
    tape = lower(graph, weights_of(graph, {"w": w}), numerics=numerics)
    first = {name: y.copy() for name, y in tape.run(feed).items()}
    y = tape.run(feed)
    assert all(value.flags.c_contiguous and value.flags.writeable for value in y.values())
    for name in y:  # scribbling over one changes neither what is fed, nor another, nor the next run
        y[name][...] = 777
        assert all(np.all(other != 777) for key, other in y.items() if key > name)
        assert all(np.all(other != 777) for other in (feed["x"], w))
        y[name][...] = first[name]
    for name, value in tape.run(feed).items():
        np.testing.assert_array_equal(value, first[name])


def test_inputs_may_be_read_only_and_strided(rng):
    x = input_("x", TensorType(FP32, (1, 300, 1, 1)))
    graph = Graph({"x": x}, {"y": conv1x1(x, weight("w", TensorType(FP32, (300, 300, 1, 1))))})
    w = rng.standard_normal((300, 300, 1, 1), dtype=np.float32)
    tape = lower(graph, weights_of(graph, {"w": w}), numerics="fp32")
    strided = rng.standard_normal((1, 600, 1, 1), dtype=np.float32)[:, ::2]
    frozen = strided.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(tape.run({"x": strided})["y"], tape.run({"x": frozen})["y"])


def test_a_value_is_dropped_right_after_its_last_use(monkeypatch):
    values, then = [], []

    def alive():
        return sum(value() is not None for value in values)

    def tracked(x):
        y = np.tanh(x)
        values.append(weakref.ref(y))
        then.append(alive())
        return y

    monkeypatch.setitem(functions._UFUNCS, type(tanh(const(0.0, FP32)).op), tracked)
    x = y = input_("x", TensorType(FP32, (8,)))
    kept = tanh(x)
    for _ in range(20):
        y = tanh(y)
    graph = Graph({"x": x}, {"y": tanh(kept + y)})
    lower(graph, {}, numerics="fp32").run({"x": np.ones(8, np.float32)})
    assert max(then) == 3, "what is kept, an operand and its result"
    assert then[-1] == 1, "both operands of the sum are gone"
    assert not alive()


def test_moving_elements_copies_nothing(rng, monkeypatch):
    seen = []
    monkeypatch.setitem(
        functions._UFUNCS, type(tanh(const(0.0, FP32)).op), lambda x: seen.append(x) or x
    )
    x = input_("x", TensorType(FP32, (2, 6)))
    moved = identity(transpose(slice_by_index(reshape(x, (3, 4)), (1, 0), (3, 4)), (1, 0)))
    graph = Graph({"x": x}, {"y": tanh(cast(moved, FP32))})
    fed = rng.standard_normal((2, 6), dtype=np.float32)
    lower(graph, {}, numerics="fp32").run({"x": fed})
    assert np.shares_memory(seen[0], fed)


# What is resolved at lowering


def test_what_depends_on_weights_alone_is_computed_once(rng):
    x = input_("x", TensorType(FP16, (1, 5, 1, 3)))
    w = weight("w", TensorType(FP16, (5, 4, 1, 1)))
    gain = exp(reshape(weight("g", TensorType(FP16, (4,))), (1, 4, 1, 1))) * const(0.5, FP16)
    graph = Graph({"x": x}, {"y": conv1x1(x, transpose(w, (1, 0, 2, 3))) * gain})
    feed = {"x": rng.standard_normal((1, 5, 1, 3)).astype(np.float16)}
    arrays = {
        "w": rng.standard_normal((5, 4, 1, 1)).astype(np.float16),
        "g": rng.standard_normal(4).astype(np.float16),
    }
    tape = lower(graph, weights_of(graph, arrays), numerics="fp16")
    assert len(tape.code.commands) == 3, "x turned, the product, and the gain times it"
    want = evaluate(graph, feed, arrays)["y"]
    np.testing.assert_allclose(tape.run(feed)["y"], want, rtol=2**-10)


def test_a_constant_is_not_folded_into_a_much_larger_one(monkeypatch):
    monkeypatch.setattr(sys.modules["orion_ane.engine.known"], "MAX_FOLDED_BYTES", 1000)
    x = input_("x", TensorType(FP32, (1,)))
    row, column = (const(np.ones(shape), FP32) for shape in ((1, 64), (64, 1)))
    graph = Graph({"x": x}, {"y": row * column * x})
    tape = lower(graph, {}, numerics="fp32")
    assert all(slot is None or slot.nbytes <= 1000 for slot in tape._slots)
    assert np.all(tape.run({"x": np.ones(1, np.float32)})["y"] == 1)


def test_a_weight_that_is_missing_or_of_another_type_is_named():
    w = weight("the_weight", TensorType(FP16, (2, 3)))
    x = input_("x", w.type)
    graph = Graph({"x": x}, {"y": w + x})
    with pytest.raises(ShapeError, match=r"weight the_weight: no fitting value: want fp16\[2,3\]"):
        lower(graph, {}, numerics="fp16")
    wrong = {w.op: np.zeros((2, 3), np.float32)}
    with pytest.raises(ShapeError, match=r"weight the_weight: .*: got float32\[2, 3\], want"):
        lower(graph, wrong, numerics="fp16")


@pytest.mark.parametrize("threads", [0, -1])
def test_a_number_of_threads_below_one_is_refused(threads):
    x = input_("x", TensorType(FP16, (1,)))
    with pytest.raises(ConfigError, match=f"threads: .*: got {threads}, want at least 1"):
        lower(Graph({"x": x}, {"y": x}), {}, numerics="fp16", threads=threads)


def test_the_run_is_let_go_after_an_error():
    held = threads.Threads()

    def fail():
        with held.running():
            assert held.are_running
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not held.are_running
    with held.running():
        pass


def test_a_plan_that_is_stopped_at_any_instant_lets_the_next_run_begin():
    """As Ctrl-C does: an exception at each instruction of ours, one after the other."""
    held, before = threads.Threads(1), sys.gettrace()
    done, at = 0, 0

    def trace(frame, event, _):
        nonlocal done
        frame.f_trace_opcodes = frame.f_code.co_filename == threads.__file__
        done += event == "opcode"
        if done > at:
            raise KeyboardInterrupt
        return trace

    stopped = True
    while stopped:
        done, stopped = 0, False
        sys.settrace(trace)
        try:
            with held.turn:
                pass
        except KeyboardInterrupt:
            stopped = True
        finally:
            sys.settrace(before)
        at += 1
        assert not threads._RUNNING.locked(), at
    assert at > 1
