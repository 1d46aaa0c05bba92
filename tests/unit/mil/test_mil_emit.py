"""The text of a graph: what the device wants to see, and what people do."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.errors import MilError
from orion_ane.ir import Graph, MilCall, Node, Op, isomorphic
from orion_ane.mil import (
    DIALECTS,
    IOS16,
    IOS17,
    IOS18,
    Function,
    Module,
    Port,
    emit,
    emit_module,
    parse,
    parse_graph,
    returned,
)
from orion_ane.ops import BlobRef, Weight
from orion_ane.ops.curve import Rsqrt
from orion_ane.types import DType, TensorType

FP16, FP32, INT32 = DType.FP16, DType.FP32, DType.INT32
X = TensorType(FP16, (1, 8, 1, 32))
PATH = "@model_path/weights/weight.bin"


def block() -> Graph:
    """A norm, a product, a curve and a softmax: every kind of parameter."""
    x = o.input_("x", X)
    mean = o.reduce_mean(x * x, (1,))
    normal = x * o.rsqrt(mean, 1e-5)
    w = Node(Weight("layers.0.wq", TensorType(FP16, (8, 8, 1, 1)), BlobRef(PATH, 64)))
    q = o.conv1x1(normal, w)
    heads = o.transpose(o.reshape(q, (1, 2, 4, 32)), (0, 1, 3, 2))
    scores = o.matmul(heads, heads, ty=True) * o.const(0.5, FP16)
    mask = o.const(np.triu(np.full((4, 4), -np.inf), 1), FP16)
    weights = o.softmax(scores, -1)
    part = o.slice_by_index(weights, (0, 0, 0, 0), (1, 1, 4, 4)) + mask
    return Graph({"x": x}, {"wide": o.cast(-o.clip(part, -1.0, 2.0), FP32), "probs": weights})


STATEMENT = re.compile(
    r" {8}(?P<type>\S.*?) (?P<value>\S+) = (?P<op>\w+)\((?P<args>[^()]*)\)"
    r'\[name = (?:string|tensor<string, \[\]>)\("(?P<name>[^"]*)"\)(?P<val>, val = .*)?\];'
)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_in_device_form_every_line_is_a_named_statement_with_named_sorted_arguments(dialect):
    lines = emit(block(), dialect=dialect).text.splitlines()
    start = next(i for i, line in enumerate(lines) if "func main" in line)
    known = {"x"}
    for line in lines[start + 1 : -2]:
        match = STATEMENT.fullmatch(line)
        assert match, line
        assert match["name"] == match["value"]
        assert (match["val"] is not None) == (match["op"] == "const")
        args = [arg.split(" = ") for arg in match["args"].split(", ") if arg]
        assert [key for key, _ in args] == sorted(key for key, _ in args)
        assert {value for _, value in args} <= known  # no literal in line
        assert match["value"] not in known
        known.add(match["value"])


@pytest.mark.parametrize("name", ["ios16", "ios18"])
def test_a_block_prints_as_it_did(name, golden):
    golden(f"mil/block.{name}.mil", emit(block(), dialect=DIALECTS[name]).text)
    golden(f"mil/block.{name}.short.mil", emit(block(), dialect=DIALECTS[name], short=True).text)


@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
def test_equal_graphs_print_alike(short):
    assert emit(block(), short=short) == emit(block(), short=short)


def test_the_short_form_is_what_a_person_would_write():
    x = o.input_("x", TensorType(FP16, (1, 64, 1, 16)))
    wide = o.cast(x, FP32)
    scaled = wide * o.const(0.1, FP32)
    graph = Graph({"x": x}, {"y": o.softmax(scaled, 1)})
    assert emit(graph, short=True).text == (
        "func main<ios18>(tensor<fp16, [1,64,1,16]> x) {\n"
        '    tensor<fp32, [1,64,1,16]> v0 = cast(dtype="fp32", x=x);\n'
        "    tensor<fp32, [1,64,1,16]> v1 = mul(x=v0, y=0.1);\n"
        "    tensor<fp32, [1,64,1,16]> y = softmax(axis=1, x=v1);\n"
        "} -> (y);\n"
    )


def test_in_short_form_a_literal_shows_its_type_only_where_nothing_else_tells_it():
    x, n = o.input_("x", TensorType(FP16, (2,))), o.input_("n", TensorType(INT32, (2,)))
    yes = o.const(True, DType.BOOL)
    graph = Graph(
        {"x": x, "n": n},
        {
            "a": x + o.const([1, 2], FP16),
            "b": n + o.const(3, INT32),
            "c": o.select(yes, o.const(1, FP32), o.const(2, FP32)),
            "d": Node(Rsqrt(float(np.float32(1e-12))), (x,)),
            "e": o.concat(x, o.const([4], FP16), axis=0),
        },
    )
    text = emit(graph, short=True).text
    for call in (
        "add(x=x, y=[1.0, 2.0])",
        "add(x=n, y=3)",
        "select(a=fp32(1.0), b=fp32(2.0), cond=true)",
        "rsqrt(epsilon=fp32(1e-12), x=x)",
        "concat(axis=0, interleave=false, values=(x, [4.0]))",
    ):
        assert call in text
    assert isomorphic(parse_graph(text), graph)


def test_a_constant_is_written_once_whoever_holds_it():
    x = o.input_("x", X)
    half = [o.const(0.5, FP16) for _ in range(3)]
    graph = Graph({"x": x}, {"y": o.power(x * half[0] + half[1], 0.5) * half[2]})
    text = emit(graph).text
    assert text.count("fp16(0x1p-1)") == 1
    assert text.count("const()") == 1


def test_a_weight_is_written_once_for_each_place_and_keeps_its_label():
    x = o.input_("x", X)
    of = TensorType(FP16, (8, 8, 1, 1))
    places = [BlobRef(PATH, 64), BlobRef(PATH, 64), BlobRef(PATH, 256)]
    nodes = [Node(Weight("w/1", of, at)) for at in places]
    y = x
    for w in nodes:
        y = o.conv1x1(y, w)
    text = emit(Graph({"x": x}, {"y": y})).text
    assert text.count("BLOBFILE") == 2
    assert (
        f'tensor<fp16, [8, 8, 1, 1]> w_1 = const()[name = string("w_1"), val = {of_text()}' in text
    )
    labels = [n.op.label for n in parse_graph(text).nodes if isinstance(n.op, Weight)]
    assert labels == ["w_1", "w_1_1"]


def of_text() -> str:
    return f'tensor<fp16, [8, 8, 1, 1]>(BLOBFILE(path = string("{PATH}"), offset = uint64(64)))]'


@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
def test_a_weight_in_no_file_is_refused(short):
    w = o.weight("wq", TensorType(FP16, (8,)))
    with pytest.raises(MilError, match="weight wq: is in no file"):
        emit(Graph({}, {"y": -w}), short=short)


def test_ports_map_the_users_names_to_the_texts():
    x, t = o.input_("x", X), o.input_("t", X)
    emitted = emit(Graph({"tensor": t, "a/b": x}, {"a_b": t + x, "true": -x}))
    assert emitted.inputs == (Port("tensor", "tensor_1", X), Port("a/b", "a_b_1", X))
    assert emitted.outputs == (Port("a_b", "a_b", X), Port("true", "true_1", X))
    graph = parse_graph(emitted.text)
    assert list(graph.inputs) == ["tensor_1", "a_b_1"]
    assert list(graph.outputs) == ["a_b", "true_1"]


def test_a_name_of_the_users_is_never_a_number_of_ours():
    v0, c0 = o.input_("v0", X), o.input_("c0", X)
    graph = Graph({"v0": v0, "c0": c0}, {"v1": o.power(v0 * c0, 2) + v0})
    text = emit(graph).text
    assert isomorphic(parse_graph(text), graph)
    assert " v2 = mul(x = v0, y = c0)" in text


def test_an_input_and_an_output_of_one_name_are_two_symbols():
    x = o.input_("x", X)
    emitted = emit(Graph({"x": x}, {"x": -x}))
    assert [port.symbol for port in (*emitted.inputs, *emitted.outputs)] == ["x", "x_1"]
    assert [port.name for port in emitted.outputs] == ["x"]


def test_an_output_is_made_by_an_op_of_its_own():
    x = o.input_("x", X)
    y = o.relu(x)
    w = Node(Weight("w", X, BlobRef(PATH, 64)))
    graph = Graph({"x": x}, {"a": y, "b": y, "c": x, "d": w, "e": o.const(1, FP16), "f": y})
    ops = {name: node.op.name for name, node in returned(graph).outputs.items()}
    assert ops == {"a": "relu"} | dict.fromkeys("bcdef", "identity")
    assert isomorphic(parse_graph(emit(graph).text), returned(graph))
    own = Graph({"x": x}, {"y": y})
    assert returned(own) is own


def test_an_unused_input_stays_a_parameter():
    x, n = o.input_("x", X), o.input_("n", TensorType(INT32, ()))
    graph = Graph({"n": n, "x": x}, {"y": -x})
    assert "func main<ios18>(int32 n, tensor<fp16, [1, 8, 1, 32]> x)" in emit(graph).text
    assert "(tensor<int32, []> n, tensor" in emit(graph, dialect=IOS16).text
    assert isomorphic(parse_graph(emit(graph).text), graph)


def test_an_epsilon_that_fp16_would_change_is_fp32_where_the_opset_allows_it():
    x = o.input_("x", X)
    graph = Graph({"x": x}, {"y": Node(Rsqrt(float(np.float32(1e-12))), (x,))})
    assert "val = fp32(0x1.19799" in emit(graph).text
    assert "val = tensor<fp32, []>(0x1.19799" in emit(graph, dialect=IOS17).text
    with pytest.raises(MilError, match="rsqrt: epsilon does not fit its type"):
        emit(graph, dialect=IOS16)


@dataclass(frozen=True)
class Odd(Op):
    """A row, in no table, whose parameter is whatever a test gives it."""

    value: object
    infer = staticmethod(itemgetter(0))
    eval = grad = read = None

    def mil(self) -> MilCall:
        return MilCall("odd", ("x",), {"p": self.value})


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (FP16, 0.1),
        (FP16, 1e6),
        (FP16, 1e-9),
        (FP32, 0.1),
        (INT32, 0.5),
        (FP16, 1 << 31),
        (FP16, (1, 1 << 90)),
        (FP16, ("a",)),
        (FP16, (0.5, "a")),
        (FP16, None),
    ],
    ids=str,
)
def test_a_parameter_that_its_type_does_not_hold_is_refused(dtype, value):
    x = o.input_("x", TensorType(dtype, (2,)))
    with pytest.raises(MilError, match="odd: p does not fit its type"):
        emit(Graph({"x": x}, {"y": Node(Odd(value), (x,))}))


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (FP16, 0.5, "fp16(0x1p-1)"),
        (FP32, -math.inf, "fp32(-inf)"),
        (FP16, math.nan, "fp16(nan)"),
        (INT32, 2.0, "int32(2)"),
        (FP16, True, "bool(true)"),
        (FP16, 2, "int32(2)"),
        (FP16, (1.0, -2.0), "tensor<fp16, [2]>([0x1p+0, -0x1p+1])"),
        (FP16, "a", 'string("a")'),
        (FP16, (), "tensor<int32, [0]>([])"),
        (FP16, (True, False), "tensor<bool, [2]>([true, false])"),
    ],
    ids=str,
)
def test_a_parameter_has_the_type_of_its_kind(dtype, value, text):
    x = o.input_("x", TensorType(dtype, (2,)))
    assert f"val = {text}]" in emit(Graph({"x": x}, {"y": Node(Odd(value), (x,))})).text


def test_functions_share_a_text_and_keep_their_opsets():
    module = Module(
        {"main": Function(block(), 18), "other": Function(block(), 17)}, IOS18, {"k": 'a "b"'}
    )
    text = emit_module(module)
    assert text.startswith('program(1.3)\n[buildInfo = dict<string, string>({{"k", "a \\"b\\""}})]')
    again = parse(text)
    assert [(name, f.opset) for name, f in again.functions.items()] == [("main", 18), ("other", 17)]
    assert again.build_info == {"k": 'a "b"'}
    assert emit_module(again) == text
    short = emit_module(module, short=True)
    assert emit_module(parse(short), short=True) == short


def test_a_text_without_build_info_stays_without():
    text = emit_module(Module({"main": Function(block(), 16)}, IOS16))
    assert text.startswith("program(1.0)\n{\n    func main<ios16>(")
    assert parse(text).build_info is None


def test_a_functions_name_is_an_identifier():
    with pytest.raises(MilError, match="not a function's name: got tensor"):
        emit_module(Module({"tensor": Function(block(), 18)}, IOS18))
