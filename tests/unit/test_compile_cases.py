"""Cases of others' bug reports that compiling for a target answers, each by its name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane import compiler
from orion_ane.ane.check import check
from orion_ane.ane.layout import ROW_BYTES, surface_bytes
from orion_ane.ane.targets import TARGETS, target
from orion_ane.errors import LimitError
from orion_ane.ir import Graph, Node
from orion_ane.mil.names import is_identifier
from orion_ane.mil.parse import parse_graph
from orion_ane.mil.program import Program
from orion_ane.runtime import backend
from orion_ane.types import Array, DType, TensorType

FP16 = DType.FP16


def fp16(name: str, *shape: int) -> Node:
    return o.input_(name, TensorType(FP16, shape))


def run(program: Program, feed: dict[str, Array], device: str = "strict") -> dict[str, Array]:
    return backend("emulator", target=device).compile(program).run(feed)


def test_a_packed_port_over_the_longest_axis_is_refused_by_its_axis_a01():
    def packed(width: int) -> Graph:
        x = fp16("x", 1, 64, 1, width)
        return Graph({"x": x}, {"y": o.exp(x)})

    assert compiler.compile(packed(2 * 512 + 3 * 5120)).inputs[0].logical is None
    with pytest.raises(LimitError, match="input a00_x: axis W 17920 > 16384"):
        compiler.compile(packed(2 * 512 + 3 * 5632))
    with pytest.raises(LimitError, match=r"\(ANE107, rejected\)"):
        compiler.compile(packed(2 * 512 + 3 * 5632), target="m1")
    compiler.compile(packed(2 * 512 + 3 * 5632), target="m4")


REFUSED = {
    "concat": "concat(axis=1, interleave=false, values=(x, t))",
    "gelu": 'gelu(mode="TANH_APPROXIMATION", x=x)',
    "conv": "conv(bias=b, dilations=[1, 1], groups=1, pad=[0, 0, 0, 0],"
    ' pad_type="valid", strides=[1, 1], weight=w, x=x)',
}


@pytest.mark.parametrize("op", REFUSED)
def test_what_the_paper_refuses_is_spelled_otherwise_and_means_the_same_a03(op, rng):
    """No concat, no gelu and no bias in the text, and the same numbers out of it."""
    channels = 64 if op == "concat" else 32
    graph = parse_graph(f"""
        func main<ios18>(tensor<fp16, [1,32,1,32]> x, tensor<fp16, [1,32,1,32]> t) {{
            tensor<fp16, [32,32,1,1]> w = const()[val=tensor<fp16, [32,32,1,1]>(BLOBFILE(
                path=string("@model_path/weights/weight.bin"), offset=uint64(64)))];
            tensor<fp16, [32]> b = const()[val=tensor<fp16, [32]>(BLOBFILE(
                path=string("@model_path/weights/weight.bin"), offset=uint64(2176)))];
            tensor<fp16, [1,{channels},1,32]> y = {REFUSED[op]};
        }} -> (y);""")
    weights = {
        node.op.label: rng.normal(size=node.type.shape).astype(np.float16)
        for node in graph.nodes
        if isinstance(node.op, o.Weight)
    }
    program = compiler.compile(graph, weights, target="paper")
    assert not check(program, TARGETS["paper"])
    assert f" {op}(" not in program.text or (op == "conv" and "bias" not in program.text)
    feed = {name: rng.normal(size=(1, 32, 1, 32)).astype(np.float16) for name in ("x", "t")}
    want = o.evaluate(graph, feed, weights)["y"].astype(np.float32)
    np.testing.assert_allclose(run(program, feed, "paper")["y"], want, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("device", ["paper", "strict"])
def test_one_token_is_padded_and_equals_the_first_column_of_many_a05(device, rng):
    w = rng.normal(size=(768, 768, 1, 1)).astype(np.float16) / np.float16(28)

    def layer(lanes: int) -> Program:
        x = fp16("x", 1, 768, 1, lanes)
        y = o.conv1x1(x, o.weight("w", TensorType(FP16, w.shape)))
        return compiler.compile(Graph({"x": x}, {"y": y}), {"w": w}, target=device)

    one, many = layer(1), layer(32)
    for port in (*one.inputs, *one.outputs):
        assert surface_bytes(port.type) == 768 * 32 * 2 == 49152
        assert port.of == TensorType(FP16, (1, 768, 1, 1))
    x = rng.normal(size=(1, 768, 1, 32)).astype(np.float16)
    got = run(one, {"x": x[..., :1]}, device)["y"]
    np.testing.assert_array_equal(got, run(many, {"x": x}, device)["y"][..., :1], strict=True)


def test_each_device_has_rules_of_its_own_a11(tmp_path: Path):
    """Whole rows and no reduction by one prober's report, neither by another's."""

    def device(name: str, *, holds: bool) -> str:
        path = tmp_path / f"{name}.json"
        limits = {"ANE132": holds, "ANE211": holds}
        path.write_text(json.dumps({"base": None, "limits": limits, "dialect": "ios16"}))
        return str(path)

    x = fp16("x", 1, 8, 1, 33)
    plain = Graph({"x": x}, {"y": o.exp(x)})
    reduced = Graph({"x": x}, {"y": o.reduce_sum(x, (3,))})
    narrow, free = target(device("narrow", holds=True)), target(device("free", holds=False))
    program = compiler.compile(plain, target=None, dialect=narrow.dialect)
    assert {d.code for d in check(program, narrow)} == {"ANE132"}
    assert check(program, free) == ()
    assert compiler.compile(plain, target=narrow).inputs[0].type.shape[-1] == 64
    assert compiler.compile(plain, target=free).inputs[0].type.shape[-1] == 33
    with pytest.raises(LimitError, match="reduce_sum is refused"):
        compiler.compile(reduced, target=narrow)
    compiler.compile(reduced, target=free)


@pytest.mark.parametrize("device", ["strict", None])
@pytest.mark.parametrize("names", [("tensor", "true", "fp16", "func"), ("a/b", "a_b", "a:b", "")])
def test_no_name_of_a_port_breaks_the_text_a13_a15(names, device):
    for order in (names, names[::-1]):
        leaves = {name: fp16(name, 32) for name in order}
        graph = Graph(leaves, {name: -leaf for name, leaf in leaves.items()})
        program = compiler.compile(graph, target=device)
        ports = (*program.inputs, *program.outputs)
        assert len({port.symbol for port in ports}) == len(ports)
        assert all(is_identifier(port.symbol) for port in ports)
        feed = {name: np.full(32, i, np.float16) for i, name in enumerate(order)}
        got = backend("cpu").compile(program).run(feed)
        assert {name: -int(y[0]) for name, y in got.items()} == {
            name: i for i, name in enumerate(order)
        }


def test_a_short_last_axis_is_a_row_of_64_bytes_a21(rng):
    x = fp16("x", 2, 3, 6)
    program = compiler.compile(Graph({"x": x}, {"y": o.identity(x)}))
    (port,) = program.inputs
    assert port.type.shape == (2, 3, ROW_BYTES // 2)
    value = rng.normal(size=(2, 3, 6)).astype(np.float16)
    np.testing.assert_array_equal(run(program, {"x": value})["y"], value, strict=True)


def test_ports_that_are_one_value_or_an_input_have_each_an_op_of_their_own(rng):
    """What is handed through crashes a device, and two names of one value are no two surfaces."""
    x = fp16("x", 5)
    y = o.exp(x)
    program = compiler.compile(Graph({"x": x}, {"a": x, "b": y, "c": y, "d": x}))
    value = rng.normal(size=5).astype(np.float16)
    got = run(program, {"x": value})
    np.testing.assert_array_equal(got["a"], value)
    np.testing.assert_array_equal(got["d"], value)
    np.testing.assert_array_equal(got["b"], got["c"])


def test_inputs_of_all_sizes_meet_their_ports_however_a_device_binds_them(rng):
    """More than ten ports, whose names alone would sort otherwise."""
    leaves = {f"p{n}": fp16(f"p{n}", 1, 1 + n % 5, 1, 32) for n in range(13)}
    graph = Graph(leaves, {f"q{name}": -leaf for name, leaf in leaves.items()})
    feed = {n: rng.normal(size=x.type.shape).astype(np.float16) for n, x in leaves.items()}
    for device in ("strict", "m1", "m2", "m5", "paper"):
        program = compiler.compile(graph, target=device)
        if device != "paper":  # where all are of one size
            assert [port.name for port in program.inputs[:3]] == ["p0", "p5", "p10"]
        for name, value in run(program, feed, device).items():
            np.testing.assert_array_equal(value, -feed[name[1:]], f"{device} {name}", strict=True)


@pytest.mark.parametrize("vocabulary", [32000, 50257])
def test_a_head_runs_in_both_directions(vocabulary, rng):
    """Towards the vocabulary as it is; back from it in parts that read fewer channels."""
    w = rng.normal(size=(vocabulary, 8, 1, 1)).astype(np.float16)
    for way, reads in ((w, 8), (np.ascontiguousarray(w.transpose(1, 0, 2, 3)), vocabulary)):
        x = fp16("x", 1, reads, 1, 32)
        y = o.conv1x1(x, o.weight("w", TensorType(FP16, way.shape)))
        program = compiler.compile(Graph({"x": x}, {"y": y}), {"w": way})
        assert program.text.count(" conv(") == (1 if reads == 8 else 2)
        value = rng.normal(size=(1, reads, 1, 32)).astype(np.float16)
        want = way[..., 0, 0].astype(np.float32) @ value[0, :, 0].astype(np.float32)
        got = run(program, {"x": value})["y"][0, :, 0]
        np.testing.assert_allclose(got, want, rtol=0.01, atol=0.5)


def test_what_no_legaliser_keeps_is_refused_all_at_once():
    x = o.input_("n", TensorType(DType.INT32, (32,)))
    y = fp16("y", 1, 1, 1, 20000)
    with pytest.raises(LimitError) as refused:
        compiler.compile(Graph({"n": x, "y": y}, {"m": o.identity(x), "z": o.exp(y)}))
    assert {d.code for d in refused.value.diagnostics} == {"ANE154", "ANE107"}
    assert "target strict: 4 limits are broken" in str(refused.value)
