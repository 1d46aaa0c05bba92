"""What every backend must do: a program's text and bytes run as its graph means, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import strategies
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ops.samples import SAMPLES, Sample

from orion_ane.ane.targets import TARGETS
from orion_ane.compiler import compile as compile_for
from orion_ane.errors import BackendError, LimitError, MilError
from orion_ane.ir import Graph, Node
from orion_ane.mil import Port, Program
from orion_ane.mil.blob import pack
from orion_ane.ops import (
    Weight,
    cast,
    const,
    conv1x1,
    evaluate,
    exp,
    identity,
    input_,
    transpose,
    weight,
)
from orion_ane.ops.leaf import Leaf
from orion_ane.runtime import backend
from orion_ane.types import DType, TensorType

FP16, FP32 = DType.FP16, DType.FP32
compile_graph = partial(compile_for, target=None)

SUMS = ("conv", "conv1x1", "linear", "matmul", "reduce_sum", "reduce_mean", "softmax")
"""Rows whose sums a device may take in another order than the oracle."""
FP16_ROUNDING = 2.0**-10
"""A sum in another order may round to the neighbouring fp16 value."""
FP32_SUM = 2.0**-20
"""A sum of few fp32 products in another order."""
CHAINED = 0.02
"""Some tens of ops, some of them rounded to fp16 and some not, on values about one."""

MADE = [sample for sample in SAMPLES if not isinstance(sample.op, Leaf)]


def tolerance(sample: Sample, of: TensorType) -> float:
    if sample.op.name not in SUMS or not of.dtype.is_float:
        return 0.0
    return FP16_ROUNDING if of.dtype is FP16 else FP32_SUM


def assert_close(got: np.ndarray, want: np.ndarray, relative: float) -> None:
    assert TensorType.of(got) == TensorType.of(want)
    if want.dtype.kind == "f":
        got, want = got.astype(np.float64), want.astype(np.float64)
        scale = np.maximum(abs(want), 1) if relative else 1
        assert np.all((abs(got - want) <= relative * scale) | (got == want))
    else:
        np.testing.assert_array_equal(got, want)


# Meaning


@pytest.mark.parametrize("sample", MADE, ids=str)
def test_a_row_means_what_the_table_says(sample, loaded, rng):
    """Fed at run, from the blob, and from the text: what is known early may be worked out early."""
    values = sample.values(rng)
    types = [TensorType.of(value) for value in values]
    inputs = {f"x{i}": input_(f"x{i}", of) for i, of in enumerate(types)}
    spare = {"spare": input_("spare", TensorType(FP16, (1,)))}
    feed = {"spare": np.ones(1, np.float16)}
    fed = dict(zip(inputs, values, strict=True))
    stored = {f"w{i}": value for i, value in enumerate(values) if value.dtype != np.bool_}
    consts = [const(value, of.dtype) for value, of in zip(values, types, strict=True)]
    weights = [  # a blob holds no bools
        weight(f"w{i}", of) if f"w{i}" in stored else consts[i] for i, of in enumerate(types)
    ]
    for nodes, ports, arrays in (
        (inputs.values(), inputs, {}),
        (weights, {}, stored),
        (consts, {}, {}),
    ):
        if sample.op.name == "slice_update" and nodes is consts:
            continue  # a known place must be the update's, and these are drawn
        y = Node(sample.op, tuple(nodes))
        graph = Graph(spare | ports, {"y": y, "spare_too": identity(spare["spare"])})
        want = evaluate(graph, feed | fed, arrays)["y"]
        program = compile_graph(graph, arrays, pipeline=())
        got = loaded.compile(program).run(feed | (fed if ports else {}))["y"]
        assert_close(got, want, tolerance(sample, y.type))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_random_graph_means_what_the_oracle_says(loaded, data):
    graph = data.draw(strategies.graphs(smooth=True))
    feed, weights = data.draw(strategies.feeds(graph)), data.draw(strategies.weight_feeds(graph))
    got = loaded.compile(compile_graph(graph, weights)).run(feed)
    want = evaluate(graph, feed, weights)
    assert list(got) == list(want)
    for name in want:
        if want[name].dtype.kind == "f":
            assert_close(got[name], want[name], CHAINED)
        else:
            assert TensorType.of(got[name]) == TensorType.of(want[name])


TEXT = """program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 3, 1, 2]> x) {
        tensor<fp16, [1, 3, 1, 2]> y = add(x = x, y = x)[name = string("y")];
    } -> (y);
}
"""


def test_a_text_that_no_graph_of_ours_made_runs_too(loaded, rng):
    of = TensorType(FP16, (1, 3, 1, 2))
    x = rng.standard_normal(of.shape).astype(np.float16)
    for text, want in ((TEXT, x + x), (TEXT.replace("add", "mul"), x * x)):
        program = Program(text, {}, (Port("in", "x", of),), (Port("out", "y", of),))
        np.testing.assert_array_equal(loaded.compile(program).run({"in": x})["out"], want)


# A program with a weight, for what follows

X = TensorType(FP16, (1, 6, 1, 4))
W = TensorType(FP16, (6, 5, 1, 1))


def with_weights(rng: np.random.Generator) -> tuple[Graph, dict[str, np.ndarray]]:
    """y = wᵀ x · g: what depends on weights alone may be worked out when a program is loaded."""
    x = input_("x", X)
    gain = exp(weight("g", TensorType(FP16, (1, 5, 1, 1))))
    y = conv1x1(x, transpose(weight("w", W), (1, 0, 2, 3))) * gain
    arrays = {
        "w": rng.standard_normal(W.shape).astype(np.float16),
        "g": rng.standard_normal((1, 5, 1, 1)).astype(np.float16),
    }
    return Graph({"x": x}, {"y": y}), arrays


def assert_runs(executable, graph: Graph, arrays: Mapping[str, np.ndarray], rng) -> None:
    feed = {"x": rng.standard_normal(X.shape).astype(np.float16)}
    got = executable.run(feed)["y"]
    assert_close(got, evaluate(graph, feed, arrays)["y"], 4 * FP16_ROUNDING)


# Programs that cannot be loaded


@pytest.mark.parametrize("text", ["", "program", TEXT.replace("add", "gelu_of_the_day")])
def test_a_text_that_is_not_mil_is_refused_and_not_counted(text, loaded):
    before = loaded.compiles
    with pytest.raises(MilError):
        loaded.compile(Program(text, {}, (), ()))
    assert loaded.compiles == before


def test_ports_that_are_not_the_texts_are_refused(loaded):
    of = TensorType(FP16, (1, 3, 1, 2))
    port, other = Port("x", "x", of), Port("x", "x", of.with_shape((1, 3, 1, 3)))
    for inputs, outputs in (((), ()), ((other,), (port,)), ((port,), (Port("y", "z", of),))):
        with pytest.raises(MilError, match=r"ports: not the (in|out)puts of the text: got"):
            loaded.compile(Program(TEXT, {}, inputs, outputs))


def test_blobs_that_are_not_the_texts_are_refused(loaded, rng):
    graph, arrays = with_weights(rng)
    program = compile_graph(graph, arrays)
    (path,) = program.weights

    def refuses(files: dict, says: str, text: str = program.text) -> None:
        with pytest.raises(MilError, match=says):
            loaded.compile(Program(text, files, program.inputs, program.outputs))

    def packed(**changed: np.ndarray) -> dict:
        return {path: pack(arrays | changed).data}

    refuses({}, f"weight .*: no such blob file: got {path}, want a file")
    refuses({"else": b""}, f"got {path}, want \\['else'\\]")
    short = {path: program.weights[path][:-1]}
    refuses(short, f"weight .*: {path}: blob at byte .*: data past the end")
    refuses(packed(w=arrays["w"].astype(np.float32)), "got 30 elements of fp32, want fp16")
    refuses(packed(w=arrays["w"].view(np.int16)), "got 30 elements of int16, want fp16")
    refuses(packed(w=arrays["w"][:5]), r"got 25 elements of fp16, want fp16\[6,5,1,1\]")
    refuses(dict(program.weights), "blob at byte 100", program.text.replace("(64)", "(100)"))
    assert loaded.compiles == 0


# Ports


def test_what_is_fed_must_be_the_ports(loaded, rng):
    graph, arrays = with_weights(rng)
    executable = loaded.compile(compile_graph(graph, arrays))
    x = np.zeros(X.shape, np.float16)
    for feed, says in (
        ({}, r"input x: is not fed: want fp16\[1,6,1,4\]"),
        ({"y": x}, "input x: is not fed"),
        ({"x": x, "z": x}, r"input z: no such port: want \['x'\]"),
        ({"x": x.astype("f4")}, r"input x: has another type: got float32\[1, 6, 1, 4\], want fp16"),
        ({"x": x.astype("f8")}, r"input x: has another type: got float64"),
        ({"x": x[0]}, r"input x: has another type: got float16\[6, 1, 4\], want fp16\[1,6,1,4\]"),
        ({"x": x[:, :0]}, r"got float16\[1, 0, 1, 4\]"),
        ({"x": x.tolist()}, "input x: is not an array: got list"),
    ):
        with pytest.raises(BackendError, match=says):
            executable.run(feed)
    assert_runs(executable, graph, arrays, rng)


def test_ports_go_by_the_users_names(loaded, rng):
    """Names that are no identifiers, or words of MIL, are other words in the text."""
    x, y = input_("tensor", X), input_("a-b", X)
    graph = Graph({"tensor": x, "a-b": y}, {"func": x + y, "1": x - y})
    feed = {name: rng.standard_normal(X.shape).astype(np.float16) for name in graph.inputs}
    got = loaded.compile(compile_graph(graph)).run(feed)
    want = evaluate(graph, feed)
    assert list(got) == list(want)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


def test_outputs_are_new_arrays_and_inputs_are_left_alone(loaded, rng):
    x = input_("x", TensorType(FP32, (2, 3)))
    graph = Graph({"x": x}, {"same": identity(x), "moved": transpose(x, (1, 0))})
    executable = loaded.compile(compile_graph(graph, pipeline=()))
    fed = rng.standard_normal((2, 3), dtype=np.float32)
    fed.flags.writeable = False
    first = executable.run({"x": fed})
    for y in first.values():
        y[...] = 0
    second = executable.run({"x": fed})
    np.testing.assert_array_equal(second["same"], fed)
    np.testing.assert_array_equal(second["moved"], fed.T)


# Reload


def test_a_reload_uses_the_new_bytes(loaded, rng):
    graph, arrays = with_weights(rng)
    program = compile_graph(graph, arrays)
    executable = loaded.compile(program)
    assert_runs(executable, graph, arrays, rng)
    _, other = with_weights(rng)
    changed = compile_graph(graph, other)
    executable.reload(changed.weights)
    assert_runs(executable, graph, other, rng)
    assert executable.program.weights_key == changed.weights_key != program.weights_key
    assert executable.program.code_key == program.code_key
    assert loaded.compiles == 1


def test_a_reload_of_another_layout_is_refused_and_changes_nothing(loaded, rng):
    graph, arrays = with_weights(rng)
    program = compile_graph(graph, arrays)
    (path,) = program.weights
    executable = loaded.compile(program)
    _, other = with_weights(rng)
    file = pack(other).data
    for files, says in (
        ({}, "reload: the files have another layout: got {}, want"),
        ({"else": file}, "another layout: got {'else'"),
        ({path: file, "else": file}, "another layout"),
        ({path: bytes(file) + b"\0"}, "another layout"),
        (
            {path: pack(other | {"w": other["w"].view(np.int16)}).data},
            "do not fit the text: weight",
        ),
        (
            {path: bytes(len(file))},
            rf"the files do not fit the text: weight .*: {path}: blob file: wrong version",
        ),
    ):
        with pytest.raises(BackendError, match=says):
            executable.reload(files)
        assert_runs(executable, graph, arrays, rng)


# Donors


def test_a_donors_code_runs_with_the_programs_weights(loaded, rng):
    graph, arrays = with_weights(rng)
    _, other = with_weights(rng)
    donor = loaded.compile(compile_graph(graph, arrays))
    changed = compile_graph(graph, other)
    executable = loaded.load(changed, donor=donor)
    assert executable.program is changed
    assert_runs(executable, graph, other, rng)
    assert_runs(donor, graph, arrays, rng)
    donor.close()
    assert_runs(executable, graph, other, rng)
    assert (loaded.compiles, loaded.loads) == (1, 1)


def test_a_donor_that_does_not_fit_is_refused(loaded, opened, rng):
    graph, arrays = with_weights(rng)
    program = compile_graph(graph, arrays)
    x = input_("x", X)
    others = loaded.compile(compile_graph(Graph({"x": x}, {"y": exp(x)})))
    closed = loaded.compile(program)
    closed.close()
    for donor, says in (
        (others, "donor: has another text than the program"),
        (closed, "donor: is closed"),
        (opened().compile(program), "donor: is not loaded on this device"),
    ):
        with pytest.raises(BackendError, match=says):
            loaded.load(program, donor=donor)
    (path,) = program.weights
    donor = loaded.compile(program)
    with pytest.raises(MilError, match="blob"):
        loaded.load(Program(program.text, {path: bytes(640)}, *ports_of(program)), donor=donor)
    assert loaded.loads == 0


def ports_of(program: Program) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    return program.inputs, program.outputs


# Targets


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_graph_compiled_for_a_target_means_what_the_oracle_says(name, data):
    """Whatever is emitted for a device is taken there, and its ports give what they should."""
    graph = data.draw(strategies.graphs(smooth=True, dtypes=(FP16,), rows=TAKEN, max_nodes=12))
    feed, weights = data.draw(strategies.feeds(graph)), data.draw(strategies.weight_feeds(graph))
    device = backend("emulator", target=name)
    try:
        program = compile_graph(graph, weights, target=device.target)
    except LimitError:
        assume(False)
    got = device.compile(program).run(feed)
    want = evaluate(graph, feed, weights)
    for port in want:
        assert_close(got[port], want[port], CHAINED)


TAKEN = frozenset({"add", "sub", "mul", "maximum", "relu", "tanh", "sigmoid", "conv1x1", "softmax"})
"""Rows that every target takes in some form."""


# Life


def test_a_closed_program_stays_closed_and_others_run_on(loaded, rng):
    graph, arrays = with_weights(rng)
    program = compile_graph(graph, arrays)
    closed, kept = loaded.compile(program), loaded.compile(program)
    closed.close()
    closed.close()
    with pytest.raises(BackendError, match="program: is closed"):
        closed.run({"x": np.zeros(X.shape, np.float16)})
    with pytest.raises(BackendError, match="program: is closed"):
        closed.reload(program.weights)
    assert_runs(kept, graph, arrays, rng)


def test_compiles_are_counted(loaded, rng):
    graph, arrays = with_weights(rng)
    program = compile_graph(graph, arrays)
    for count in (1, 2, 3):
        assert loaded.compile(program).program is program
        assert loaded.compiles == count


def large(columns: int) -> Graph:
    """A product that is worth dealing out to threads, and what follows it."""
    x = input_("x", TensorType(FP16, (1, 300, 1, columns)))
    w = weight("w", TensorType(FP16, (600, 300, 1, 1)))
    y = conv1x1(cast(x, FP32), cast(w, FP32))
    return Graph({"x": x}, {"y": cast(y * y, FP16), "z": y})


@pytest.mark.parametrize("columns", [1, 6, 64])
def test_results_are_the_same_bits_every_time_and_for_any_threads(columns, opened, rng):
    graph = large(columns)
    program = compile_graph(graph, {"w": rng.standard_normal((600, 300, 1, 1)).astype(np.float16)})
    feed = {"x": rng.standard_normal((1, 300, 1, columns)).astype(np.float16)}
    first = opened(threads=1).compile(program).run(feed)
    for threads in (1, 2, 3, None):
        executable = opened(threads=threads).compile(program)
        for _ in range(3):
            for name, y in executable.run(feed).items():
                np.testing.assert_array_equal(y, first[name])


def test_programs_run_at_once_in_many_threads(opened, rng):
    feeds, programs = [], []
    for columns in (1, 5, 40):
        array = rng.standard_normal((600, 300, 1, 1)).astype(np.float16)
        programs.append(compile_graph(large(columns), {"w": array}))
        feeds.append({"x": rng.standard_normal((1, 300, 1, columns)).astype(np.float16)})
    loaded = opened()
    executables = [loaded.compile(program) for program in programs]
    alone = [x.run(feed) for x, feed in zip(executables, feeds, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        turns = [i % 3 for i in range(24)]
        together = pool.map(lambda i: executables[i].run(feeds[i]), turns)
        for i, found in zip(turns, together, strict=True):
            for name, y in found.items():
                np.testing.assert_array_equal(y, alone[i][name])


def test_a_program_may_be_reloaded_while_it_runs(loaded, rng):
    """Each run has the old weights or the new, never a mixture."""
    graph, arrays = with_weights(rng)
    _, other = with_weights(rng)
    program, changed = compile_graph(graph, arrays), compile_graph(graph, other)
    executable = loaded.compile(program)
    feed = {"x": rng.standard_normal(X.shape).astype(np.float16)}
    old, new = executable.run(feed)["y"], loaded.compile(changed).run(feed)["y"]
    assert not np.array_equal(old, new)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(executable.run, feed) for _ in range(50)]
        for i in range(10):
            executable.reload((changed if i % 2 == 0 else program).weights)
        for run in runs:
            y = run.result()["y"]
            assert np.array_equal(y, old) or np.array_equal(y, new)


def test_weights_that_share_one_file_may_serve_many_programs(loaded, rng):
    graph, arrays = with_weights(rng)
    file = pack(arrays | {"more": np.ones(3, np.float32)})
    x = input_("x", W)
    again = Graph({"x": x}, {"y": x + weight("w", W)})
    first, second = (loaded.compile(compile_graph(g, file)) for g in (graph, again))
    assert_runs(first, graph, arrays, rng)
    np.testing.assert_array_equal(second.run({"x": arrays["w"]})["y"], arrays["w"] * 2)


def test_every_weight_of_a_graph_is_a_leaf_of_its_own(loaded):
    """Two leaves on one blob are one array."""
    leaf = weight("w", W)
    graph = Graph({}, {"y": identity(leaf), "z": leaf + Node(Weight("w", W))})
    array = np.ones(W.shape, np.float16)
    got = loaded.compile(compile_graph(graph, {"w": array}, pipeline=())).run({})
    np.testing.assert_array_equal(got["z"], got["y"] * 2)
