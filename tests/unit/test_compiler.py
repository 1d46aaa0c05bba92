from __future__ import annotations

import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import feeds, graphs, weight_feeds

import orion_ane.ops as o
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import ConfigError, MilError, ShapeError
from orion_ane.ir import Graph
from orion_ane.mil.blob import WeightFile, pack, read_blob
from orion_ane.mil.dialect import DIALECTS
from orion_ane.mil.parse import parse_graph
from orion_ane.ops import Weight
from orion_ane.passes import DEFAULT
from orion_ane.types import DType, TensorType

compile_plain = partial(compile_graph, target=None)
"""For no device: what is written is what was asked for."""


def small_graph() -> Graph:
    x = o.input_("x", TensorType(DType.FP16, (1, 3, 1, 32)))
    w = o.weight("w", TensorType(DType.FP16, (4, 3, 1, 1)))
    y = o.conv1x1(x + o.const(0, DType.FP16), w) + o.weight(
        "b", TensorType(DType.FP16, (1, 4, 1, 1))
    )
    return Graph({"x": x}, {"y": y})


@pytest.fixture
def arrays(rng) -> dict[str, np.ndarray]:
    return {
        "w": rng.normal(size=(4, 3, 1, 1)).astype(np.float16),
        "b": rng.normal(size=(1, 4, 1, 1)).astype(np.float16),
    }


def run(program, feed: dict) -> dict[str, np.ndarray]:
    """A program's meaning, from its text and bytes alone."""
    graph = parse_graph(program.text)
    weights = {}
    for node in graph.nodes:
        if isinstance(node.op, Weight):
            blob = read_blob(program.weights[node.op.at.path], node.op.at.offset)
            weights[node.op.label] = blob.array().reshape(node.type.shape)
    symbols = {port.symbol: feed[port.name] for port in program.inputs}
    found = o.evaluate(graph, symbols, weights)
    return {port.name: found[port.symbol] for port in program.outputs}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@settings(max_examples=25)
@given(data=st.data())
def test_text_and_bytes_mean_what_the_graph_means(dialect, data):
    graph = data.draw(graphs(max_nodes=12))
    feed, weights = data.draw(feeds(graph)), data.draw(weight_feeds(graph))
    program = compile_plain(graph, weights, dialect=dialect)
    assert f"func main<{dialect.name}>" in program.text
    want, got = o.evaluate(graph, feed, weights), run(program, feed)
    assert [p.name for p in program.inputs] == list(graph.inputs)
    for port in program.outputs:
        np.testing.assert_array_equal(got[port.name], want[port.name], strict=True)


def test_the_same_graph_gives_the_same_program(arrays):
    one = compile_plain(small_graph(), arrays)
    two = compile_plain(small_graph(), dict(reversed(arrays.items())))
    assert one.text == two.text
    assert (one.code_key, one.weights_key) == (two.code_key, two.weights_key)
    assert one.weights == two.weights


def test_other_weights_are_the_same_code_under_another_weights_key(arrays):
    one = compile_plain(small_graph(), arrays)
    two = compile_plain(small_graph(), {**arrays, "b": arrays["b"] + np.float16(1)})
    assert one.code_key == two.code_key
    assert one.weights_key != two.weights_key


def test_a_shared_file_may_hold_more_and_is_not_copied(arrays):
    file = pack({"spare": np.ones(9, np.int8), **arrays, "more": np.ones(2, np.float32)})
    program = compile_plain(small_graph(), file)
    assert program.weights == {file.path: file.data}
    assert np.shares_memory(
        np.frombuffer(program.weights[file.path], np.uint8), np.frombuffer(file.data, np.uint8)
    )
    feed = {"x": np.ones((1, 3, 1, 32), np.float16)}
    alone = compile_plain(small_graph(), arrays)
    np.testing.assert_array_equal(run(program, feed)["y"], run(alone, feed)["y"])


def test_a_shared_file_is_hashed_once_and_only_when_asked(arrays, monkeypatch):
    reads = []
    monkeypatch.setattr(
        "orion_ane.mil.blob.buffer_digest", lambda data: reads.append(len(data)) or "digest"
    )
    file = pack(arrays)
    programs = [compile_plain(small_graph(), file) for _ in range(3)]
    assert reads == []
    assert len({program.weights_key for program in programs}) == 1
    assert reads == [len(file.data)]


def test_a_known_digest_gives_the_key_that_reading_gives(arrays):
    program = compile_plain(small_graph(), arrays)
    copy = type(program)(program.text, program.weights, program.inputs, program.outputs)
    assert program.weights_key == copy.weights_key


def test_the_weights_of_a_program_lie_in_one_file(arrays):
    program = compile_plain(small_graph(), arrays)
    (data,) = program.weights.values()
    assert struct.unpack_from("<I", data) == (2,)


def test_a_missing_weight_is_named(arrays):
    del arrays["b"]
    with pytest.raises(MilError, match=r"weight b: missing .*want fp16\[1,4,1,1\]"):
        compile_plain(small_graph(), arrays)
    with pytest.raises(MilError, match="weight b: missing"):
        compile_plain(small_graph(), pack(arrays))


def test_an_array_that_no_leaf_names_is_an_error(arrays):
    with pytest.raises(MilError, match=r"no leaf of the graph has this label: got \['typo'\]"):
        compile_plain(small_graph(), {**arrays, "typo": arrays["b"]})


def test_a_weight_that_the_passes_drop_is_not_packed(arrays):
    x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 1)))
    both = o.concat(x, o.weight("b", x.type), axis=0)
    y = o.exp(o.slice_by_index(both, (0, 0, 0, 0), (1, 4, 1, 1)))
    program = compile_plain(Graph({"x": x}, {"y": y}), {"b": arrays["b"]})
    assert program.weights == {}
    assert "BLOBFILE" not in program.text


def test_a_graph_without_weights_has_no_file(arrays):
    x = o.input_("x", TensorType(DType.FP16, (2,)))
    graph = Graph({"x": x}, {"y": o.exp(x)})
    assert compile_plain(graph).weights == {}
    assert compile_plain(graph, pack(arrays)).weights == {}


def test_weights_past_the_limit_are_refused_with_the_number_case_w11(arrays):
    """Files of the real sizes, of which no byte is ever touched."""
    packed = pack(arrays)

    def file(size: int) -> WeightFile:
        return WeightFile(packed.path, np.zeros(size, np.uint8).data, packed.offsets, packed.types)

    assert compile_plain(small_graph(), file(2147483648)).weight_bytes == 2147483648
    with pytest.raises(MilError, match="got 2147483649 bytes, want at most 2147483648"):
        compile_plain(small_graph(), file(2147483649))


def test_the_pipeline_is_the_callers(arrays):
    assert "add" in compile_plain(small_graph(), arrays, pipeline=()).text
    text = compile_plain(small_graph(), arrays, pipeline=()).text
    assert text.count(" add(") == 2
    assert compile_plain(small_graph(), arrays, pipeline=DEFAULT).text.count(" add(") == 1
    with pytest.raises(ConfigError, match="no such pass: got no_such"):
        compile_plain(small_graph(), arrays, pipeline=["no_such"])


def test_a_broken_graph_is_refused_before_anything_else():
    x = o.input_("x", TensorType(DType.FP16, (2,)))
    with pytest.raises(ShapeError, match="one leaf is declared as two inputs"):
        compile_plain(Graph({"a": x, "b": x}, {"y": o.exp(x)}))
