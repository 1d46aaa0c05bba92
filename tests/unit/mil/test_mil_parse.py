"""MIL text as devices take it and as people write it, and what is said of any other."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.errors import MilError
from orion_ane.ir import Graph, MilArgs, Node, Op, isomorphic
from orion_ane.mil import IOS15, IOS16, IOS17, IOS18, emit_module, parse, parse_graph
from orion_ane.ops import BlobRef, Const, Input, Weight
from orion_ane.types import DType, TensorType

FP16, FP32, INT32 = DType.FP16, DType.FP32, DType.INT32
X = TensorType(FP16, (1, 4, 1, 8))
PATH = "@model_path/weights/weight.bin"

# The forms that are reported to run: on M3 to M5, and on M1 and M2 (ane-facts, 2.1).
LATER = """\
program(1.3)
[buildInfo = dict<string, string>({{"coremlc-component-MIL", "3510.2.1"}, \
{"coremlc-version", "3505.4.1"}, {"coremltools-component-milinternal", ""}, \
{"coremltools-version", "9.0"}})]
{
    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {
        string pt = const()[name = string("pt"), val = string("valid")];
        tensor<int32, [2]> st = const()[name = string("st"), val = tensor<int32, [2]>([1, 1])];
        tensor<int32, [4]> pd = const()[name = string("pd"), \
val = tensor<int32, [4]>([0, 0, 0, 0])];
        int32 gr = const()[name = string("gr"), val = int32(1)];
        tensor<fp16, [6, 4, 1, 1]> W = const()[name = string("W"), val = tensor<fp16, [6, 4, 1, 1]>\
(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
        tensor<fp16, [1, 6, 1, 8]> c = conv(dilations = st, groups = gr, pad = pd, pad_type = pt, \
strides = st, weight = W, x = x)[name = string("conv")];
        fp16 half = const()[name = string("half"), val = fp16(0x1p-1)];
        tensor<fp16, [1, 6, 1, 8]> y = mul(x = c, y = half)[name = string("y")];
    } -> (y);
}
"""
EARLIER = """\
program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3505.4.1"}})]
{
    func main<ios16>(tensor<fp16, [1, 4, 1, 8]> x) {
        tensor<string, []> pt = const()[name = tensor<string, []>("pt"), \
val = tensor<string, []>("valid")];
        tensor<int32, [2]> st = const()[name = tensor<string, []>("st"), \
val = tensor<int32, [2]>([1, 1])];
        tensor<int32, [4]> pd = const()[name = tensor<string, []>("pd"), \
val = tensor<int32, [4]>([0, 0, 0, 0])];
        tensor<int32, []> gr = const()[name = tensor<string, []>("gr"), val = tensor<int32, []>(1)];
        tensor<fp16, [6, 4, 1, 1]> W = const()[name = tensor<string, []>("W"), \
val = tensor<fp16, [6, 4, 1, 1]>(BLOBFILE(path = tensor<string, []>\
("@model_path/weights/weight.bin"), offset = tensor<uint64, []>(64)))];
        tensor<fp16, [1, 6, 1, 8]> c = conv(dilations = st, groups = gr, pad = pd, pad_type = pt, \
strides = st, weight = W, x = x)[name = tensor<string, []>("conv")];
        tensor<fp16, []> half = const()[name = tensor<string, []>("half"), \
val = tensor<fp16, []>(0x1p-1)];
        tensor<fp16, [1, 6, 1, 8]> y = mul(x = c, y = half)[name = tensor<string, []>("y")];
    } -> (y);
}
"""


def conv_graph() -> Graph:
    x = o.input_("x", X)
    w = Node(Weight("W", TensorType(FP16, (6, 4, 1, 1)), BlobRef(PATH, 64)))
    return Graph({"x": x}, {"y": o.conv1x1(x, w) * o.const(0.5, FP16)})


@pytest.mark.parametrize(
    ("text", "dialect", "pairs"), [(LATER, IOS18, 4), (EARLIER, IOS16, 1)], ids=["m3", "m1"]
)
def test_the_texts_that_run_on_devices_are_read(text, dialect, pairs):
    module = parse(text)
    assert module.dialect is dialect
    assert len(module.build_info) == pairs
    assert module.build_info["coremlc-version"] == "3505.4.1"
    assert list(module.functions) == ["main"]
    assert module.functions["main"].opset == dialect.opset
    assert isomorphic(module.functions["main"].graph, conv_graph())
    again = emit_module(module)
    assert emit_module(parse(again)) == again


def test_build_info_may_be_missing_and_other_attributes_say_nothing():
    head, tail = LATER.split("[buildInfo", 1)
    bare = head + tail[tail.index("\n{") + 1 :]
    assert parse(bare).build_info is None
    other = "program(1.3)[other = dict<string, string>({}), buildInfo = dict<string, string>({})]"
    assert parse(bare.replace("program(1.3)", other)).build_info == {}


def test_white_space_and_comments_are_free():
    text = LATER.replace("{", "{ // a comment\n", 2).replace(", ", " /* a\n ** comment */ , ")
    squeezed = "".join(line.strip() for line in LATER.splitlines())
    for variant in (text, squeezed, LATER.replace(" = ", "="), LATER.replace("\n", "\r\n")):
        assert isomorphic(parse_graph(variant), conv_graph())


def read(body: str, *inputs: str, opset: str = "ios18") -> Node:
    """The node `y` of a function with these statements and inputs."""
    return parse_graph(f"func main<{opset}>({', '.join(inputs)}) {{ {body} }} -> (y);").outputs["y"]


FP16_2, FP32_2 = "tensor<fp16, [2]> x", "tensor<fp32, [2]> x"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("tensor<fp16, [2]> y = add(x=x, y=0.1);", o.const(0.1, FP16)),
        ("tensor<fp16, [2]> y = add(x=x, y=1);", o.const(1, FP16)),
        ("tensor<fp16, [2]> y = add(x=x, y=-inf);", o.const(-np.inf, FP16)),
        ("tensor<fp16, [2]> y = add(x=x, y=[0.5, -2]);", o.const([0.5, -2], FP16)),
        ("tensor<fp16, [2,2]> y = add(x=x, y=[[1],[nan]]);", o.const([[1], [np.nan]], FP16)),
        ("tensor<fp16, [2]> y = add(x=x, y=fp16(0x1p-3));", o.const(0.125, FP16)),
        ("fp16 h = const()[val = fp16(2)]; tensor<fp16, [2]> y = add(x=x, y=h);", o.const(2, FP16)),
    ],
)
def test_a_literal_takes_the_element_type_of_the_other_operand(body, want):
    node = read(body, FP16_2)
    assert node.args[1].op == want.op
    assert read(body.replace("fp16", "fp32"), FP32_2).args[1].type.dtype is FP32


def test_a_literal_takes_its_type_from_a_number_never_from_a_bool():
    node = read("tensor<fp16, [2]> y = select(cond=c, a=x, b=0);", "bool c", FP16_2)
    assert node.args[2].op == o.const(0, FP16).op
    node = read("tensor<int32, [2]> y = add(x=n, y=[1, 2]);", "tensor<int32, [2]> n")
    assert node.args[1].op == o.const([1, 2], INT32).op
    node = read("tensor<fp16, [3]> y = concat(values=(x, [1]), axis=0, interleave=false);", FP16_2)
    assert node.args[1].op == o.const([1], FP16).op
    with pytest.raises(MilError, match="add: x: a literal has no type here"):
        read("fp16 y = add(x=1, y=2);")
    assert read("fp16 y = add(x=1, y=fp16(2));").args[0].op == o.const(1, FP16).op


def test_parameters_may_be_in_line_or_named():
    for axis in ("1", "int32(1)", "tensor<int32, []>(1)", "a"):
        node = read(
            f"int32 a = const()[val=int32(1)]; tensor<fp16, [1,2]> y = softmax(x=x, axis={axis});",
            "tensor<fp16, [1, 2]> x",
        )
        assert node.op == o.softmax(o.input_("x", TensorType(FP16, (1, 2))), 1).op


def test_a_name_that_could_be_a_literal_is_a_name_where_it_is_defined():
    node = read("tensor<fp16, [2]> y = add(x=inf, y=inf);", "tensor<fp16, [2]> inf")
    assert isinstance(node.args[1].op, Input)


def test_several_results_are_several_values():
    text = """
        tensor<fp16, [1,2,1,8]> a, tensor<fp16, [1,1,1,8]> b, tensor<fp16, [1,1,1,8]> c =
            split(x=x, axis=1, split_sizes=[2,1,1]);
        tensor<fp16, [1,4,1,8]> y = concat(values=(c, a, b), axis=1, interleave=false);"""
    y = read(text, "tensor<fp16, [1,4,1,8]> x")
    assert [arg.type.shape[1] for arg in y.args] == [1, 2, 1]
    assert [arg.op.begin[1] for arg in y.args] == [3, 0, 2]


def test_several_functions_are_read_and_main_is_the_graph():
    text = dedent("""
        func one<ios17>(fp16 x) { fp16 y = relu(x=x); } -> (y);
        func main<ios15>(fp16 x) { fp16 y = exp(x=x); } -> (y);
    """)
    module = parse(text)
    assert {name: f.opset for name, f in module.functions.items()} == {"one": 17, "main": 15}
    assert module.dialect is IOS17
    assert parse_graph(text).outputs["y"].op.name == "exp"
    assert parse(text.splitlines()[2]).dialect is IOS15
    assert parse("program(1.3) {" + text + "}").dialect is IOS18
    with pytest.raises(MilError, match=r"no function is main: got \['one', 'two'\]"):
        parse_graph(text.replace("main", "two"))


def test_an_opset_decides_what_a_zero_in_a_shape_copies():
    body = "tensor<fp16, [3, 2]> y = reshape(x=x, shape=[3, 0]);"
    assert read(body, "tensor<fp16, [1, 3, 2]> x", opset="ios17").op.shape == (3, 2)
    with pytest.raises(MilError, match="reshape"):
        read(body, "tensor<fp16, [1, 3, 2]> x", opset="ios16")


def test_what_is_returned_may_be_an_input_or_a_constant():
    graph = parse_graph("func f<ios18>(fp16 x) { int32 y = const()[val=int32(1)]; } -> (y, x);")
    assert isinstance(graph.outputs["y"].op, Const)
    assert graph.outputs["x"].args == (graph.inputs["x"],)  # through identity: Graph's law


@pytest.mark.parametrize(
    "statement",
    [
        'y = constexpr_mul2()[data = {data}, name = tensor<string, []>("y")];',  # up to ios17
        'y = constexpr_mul2(data = {data})[name = string("y")];',  # ios18
    ],
    ids=["bracket", "arguments"],
)
def test_a_constexpr_has_its_parameters_in_either_place(monkeypatch, statement):
    def reader(args: MilArgs) -> Node:
        return -args.node("data")

    monkeypatch.setitem(Op.readers, "constexpr_mul2", reader)
    data = f'tensor<fp16, [3]>(BLOBFILE(offset = uint64(128), path = string("{PATH}")))'
    y = read(f"tensor<fp16, [3]> {statement.format(data=data)}")
    assert y.args[0].op == Weight("y_data", TensorType(FP16, (3,)), BlobRef(PATH, 128))


def test_a_row_is_asked_for_every_argument(monkeypatch):
    monkeypatch.setitem(Op.readers, "halve", lambda args: o.relu(args.node("x")))
    assert read("fp16 y = halve(x=x);", "fp16 x").op.name == "relu"
    with pytest.raises(MilError, match="1:28: halve: unknown parameter: got b, y"):
        read("fp16 y = halve(x=x, y=x, b=1);", "fp16 x")


def wrong(statement: str, says: str, column: int) -> pytest.param:
    return pytest.param(statement, says, column, id=statement or says)


@pytest.mark.parametrize(
    ("statement", "says", "column"),
    [
        wrong("fp16 y = frobnicate(x=x);", "no such op: got frobnicate", 10),
        wrong("fp16 y = add(x=x, y=z);", "no such value: got z", 21),
        wrong("fp16 x = relu(x=x);", "name is defined twice: got x", 6),
        wrong("fp16 a, fp16 a = split(x=x);", "name is defined twice: got a", 9),
        wrong("fp32 y = relu(x=x);", "relu: result has another type: got fp32[], want fp16[]", 1),
        wrong("tensor<fp16, [1]> y = relu(x=x);", "got fp16[1], want fp16[]", 1),
        wrong("fp16 y, fp16 z = relu(x=x);", "relu: wrong number of results: got 2, want 1", 1),
        wrong("tensor<fp16,[2]> y = split(x=v, axis=0, num_splits=2);", "split: wrong number", 1),
        wrong("fp16 y = relu(y=x);", "relu: missing argument: want x", 1),
        wrong("fp16 y = relu(x=x, x=x);", "parameter is given twice: got x", 20),
        wrong("fp16 y = relu(x=(x, x));", "relu: x has the wrong kind", 1),
        wrong("fp16 y = relu(x=x, z=1);", "relu: unknown parameter: got z", 1),
        wrong('fp16 y = relu(x=x)[name=string("y"), z=int32(1)];', "unknown attribute: got z", 1),
        wrong("fp16 y = relu(x=x)[name=int32(1)];", "relu: name has the wrong type", 1),
        wrong("fp16 y = add(x=x, y=v, );", "unexpected: got ')', want a parameter", 24),
        wrong("tensor<fp16,[2]> y = softmax(x=v, axis=7);", "softmax: no such axis: got 7", 1),
        wrong("tensor<fp16,[2]> y = softmax(x=v, axis=x);", "softmax: not a constant: got axis", 1),
        wrong("fp16 y = add(x=x, y=int32(1));", "add: element types differ", 1),
        wrong('fp16 y = add(x=x, y="a");', "add: y: element type not supported: got string[]", 1),
        wrong('write_state(data=x, input=x)[name=string("w")];', "write_state not supported", 1),
        wrong("tensor<fp16, [?]> y = relu(x=v);", "unknown sizes are not supported: got ?", 15),
        wrong("state<tensor<fp16, [1]>> y = relu(x=v);", "state types are not supported", 1),
        wrong("list<fp16> y = relu(x=v);", "list types are not supported", 1),
        wrong("tuple<fp16, fp16> y = relu(x=v);", "tuple types are not supported", 1),
        wrong("tensor<string, [?]> y = relu(x=v);", "not supported: got ?", 17),
        wrong("tensor<float, [1]> y = relu(x=v);", "no such element type: got float", 8),
        wrong("tensor<fp16, [1.5]> y = relu(x=v);", "not a size: got 1.5", 15),
        wrong("tensor<fp16, [-1]> y = relu(x=v);", "not a size: got -1", 15),
        wrong("tensor<fp16, [1,1,1,1,1,1]> y = relu(x=v);", "rank too high", 8),
        wrong("float y = relu(x=v);", "no such type: got float", 1),
        wrong("fp16 tensor = relu(x=x);", "reserved word: got tensor", 6),
        wrong("fp16 true = relu(x=x);", "reserved word: got true", 6),
        wrong("fp16 y = relu(x=x)", "unexpected: got '}', want ';'", 20),
        wrong("fp16 y relu(x=x);", "unexpected: got 'relu', want '='", 8),
        wrong("fp16 y = const()[val = x];", "const: not a constant", 1),
        wrong("fp16 y = const();", "const: unknown parameter: got [], want val", 1),
        wrong("fp16 y = const(val=fp16(1))[val=fp16(1)];", "const: parameter is given twice", 1),
        wrong("fp16 a, fp16 y = const()[val=fp16(1)];", "const: wrong number of results", 1),
        wrong('fp16 y = const()[val = fp16(BLOBFILE(path = string("a")))];', "blob reference", 29),
        wrong(
            'fp16 y = const()[val = fp16(BLOBFILE(path = string("a"), offset = int32(1)))];',
            "not a blob reference: want path = string(…), offset = uint64(…)",
            29,
        ),
        wrong(
            'fp16 y = const()[val = int4(BLOBFILE(path = string("a"), offset = uint64(64)))];',
            "element type not supported",
            1,
        ),
        wrong("fp16 y = relu(x=x); /* no end", "comment does not end", 21),
        wrong("fp16 y = relu(x=x); 'a'", 'unexpected: got "\'"', 21),
        wrong("λ y = relu(x=x);", "unexpected: got 'λ'", 1),
    ],
)
def test_a_wrong_statement_is_named_with_its_line_and_column(statement, says, column):
    text = f"func main<ios18>(fp16 x, tensor<fp16, [2]> v) {{\n{statement} }} -> (y);"
    with pytest.raises(MilError) as refused:
        parse(text)
    assert says in str(refused.value)
    assert (refused.value.line, refused.value.column) == (2, column)
    assert str(refused.value).startswith(f"mil:2:{column}: ")


BODY = "(fp16 x) { fp16 y = relu(x=x); } -> (y);"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1:1: unexpected: got the end of the text, want 'func'"),
        ("module", "want 'func'"),
        (f"func main<ios14>{BODY}", "1:11: opset not supported: got ios14"),
        (f"program(1.0) {{ func main<ios18>{BODY} }}", "1:26: opset not supported: got ios18"),
        (f"program(2.0) {{ func main<ios18>{BODY} }}", "1:9: unknown version: got 2.0"),
        (f"program(1.3) {{ func main<ios18>{BODY}", "want '}'"),
        (f"func main<ios18>{BODY} }}", "unexpected: got '}', want the end of the text"),
        (f"func a<ios18>{BODY} func a<ios18>{BODY}", "function is defined twice: got a"),
        ("func a<ios18>(fp16 x) [k = 1] {} -> (x);", "attributes of a function not supported"),
        ("func a<ios18>(string x) {} -> (x);", "1:15: element type not supported: got string[]"),
        ("func a<ios18>(tensor<fp16, [0]> x) {} -> (x);", "type: sizes start at 1"),
        ("func a<ios18>(fp16 x, fp16 x) {} -> (x);", "1:28: name is defined twice: got x"),
        ("func a<ios18>(fp16 x) {} -> (y);", "1:30: no such value: got y"),
        ("func a<ios18>(fp16 x) {} -> (x, x);", "1:33: output is given twice: got x"),
        ("func a<ios18>(fp16 x) {} -> ();", "graph: no output"),
        ("func a<ios18>(fp16 x) {} -> (x)", "want ';'"),
        ('func a<ios18>() { string s = const()[val=string("")]; } -> (s);', "not supported"),
        (f"program(1.3)[a = dict<string, int32>({{}})] {{func a<ios18>{BODY}}}", "dict not supp"),
        (f"program(1.3)[a = string()] {{func a<ios18>{BODY}}}", "want 'dict'"),
        (
            f"program(1.3)[a = dict<string, string>({{}}), a = dict<string, string>({{}})] {BODY}",
            "attribute is given twice: got a",
        ),
        (
            'program(1.3)[a = dict<string, string>({{"k", "1"}, {"k", "2"}})]',
            "key is given twice: got k",
        ),
    ],
)
def test_a_wrong_program_is_named_with_its_place(text, says):
    with pytest.raises(MilError) as refused:
        parse(text)
    assert says in str(refused.value)
    assert refused.value.line == 1
