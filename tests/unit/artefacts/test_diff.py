from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import orion_ane.ops as o
from orion_ane.artefacts import diff
from orion_ane.cli.main import main
from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.mil import IOS16, Program
from orion_ane.mil.emit import emit
from orion_ane.types import DType, TensorType

compile_plain = partial(compile_graph, target=None)

DEVICE = """program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 4, 1, 32]> x, tensor<fp16, [1, 4, 1, 32]> z) {
        fp16 half = const()[name = string("half"), val = fp16(0x1p-1)];
        tensor<fp16, [1, 4, 1, 32]> a = mul(x = x, y = half)[name = string("a")];
        tensor<fp16, [1, 4, 1, 32]> b = tanh(x = z)[name = string("b")];
        tensor<fp16, [1, 4, 1, 32]> y = add(x = a, y = b)[name = string("y")];
    } -> (y);
}
"""
SHORT = """func main<ios16>(tensor<fp16, [1,4,1,32]> first, tensor<fp16, [1,4,1,32]> second) {
    tensor<fp16, [1,4,1,32]> t = tanh(x=second);
    tensor<fp16, [1,4,1,32]> m = mul(x=first, y=0.5);
    tensor<fp16, [1,4,1,32]> sum = add(x=m, y=t);
} -> (sum);
"""


def whats(a: str | Program, b: str | Program) -> list[str]:
    return [difference.what for difference in diff(a, b)]


def test_names_order_dialect_and_spelling_are_no_difference():
    assert diff(DEVICE, SHORT) == ()
    assert diff(SHORT, DEVICE) == ()


@settings(max_examples=25)
@given(data=st.data())
def test_a_graph_has_no_difference_from_itself_in_any_form(data):
    graph = data.draw(graphs(weights=False))
    first = emit(graph).text
    for other in (emit(graph, short=True).text, emit(graph, dialect=IOS16).text):
        assert diff(first, other) == ()


@pytest.mark.parametrize(
    ("before", "after", "what", "where"),
    [
        ("tanh(x=second)", "sigmoid(x=second)", "another op: tanh against sigmoid", "t"),
        ("y=0.5", "y=0.25", "constant differs: 0.5 against 0.25", "m"),
        ("tanh(x=second)", "tanh(x=first)", "reads input z", "z"),
    ],
)
def test_the_op_that_parts_is_told_once_with_both_places(before, after, what, where):
    (found,) = diff(DEVICE, SHORT.replace(before, after))
    assert found.where == "output y"
    assert found.what.startswith(what)
    assert found.a.line in (3, 5, 6)
    assert found.b.line in (1, 2, 3)


def test_each_of_several_differences_is_told():
    other = SHORT.replace("tanh", "sigmoid").replace("0.5", "0.25")
    assert len(diff(DEVICE, other)) == 2


def test_operands_of_another_op_are_compared_where_they_belong_together():
    other = SHORT.replace("mul(", "add(").replace("0.5", "0.25")
    assert whats(SHORT, other) == [
        "another op: mul against add",
        "constant differs: 0.5 against 0.25",
    ]
    assert whats(SHORT, SHORT.replace("tanh(x=second)", "mul(x=second, y=2.0)")) == [
        "another op: tanh against mul"
    ]


def test_parameters_are_named_with_both_values():
    def softmax(axis: int) -> str:
        return (
            "func main<ios18>(tensor<fp16, [1,4,1,32]> x) {\n"
            f"    tensor<fp16, [1,4,1,32]> y = softmax(x=x, axis={axis});\n}} -> (y);\n"
        )

    assert whats(softmax(1), softmax(3)) == ["softmax: parameters differ: axis: 1 against 3"]


def test_ports_are_compared():
    fewer = SHORT.replace(", tensor<fp16, [1,4,1,32]> second", "").replace("x=second", "x=first")
    assert "only in the second" in whats(fewer, SHORT)
    wide = SHORT.replace("32]", "64]")
    assert whats(SHORT, wide)[0] == "type differs: fp16[1,4,1,32] against fp16[1,4,1,64]"


def test_ports_that_a_device_orders_by_number_are_those_that_they_were():
    first, second = ("tensor<fp16, [1, 4, 1, 32]> " + name for name in "xz")
    numbered = DEVICE.replace(f"({first}, {second})", f"({second}, {first})")
    for old, new in (("x,", "b01_x,"), ("x)", "b01_x)"), (" z", " a00_z"), ("= z", "= a00_z")):
        numbered = numbered.replace(old, new)
    assert "a00_z, " in numbered
    assert diff(DEVICE, numbered) == ()


def test_a_leaf_that_parts_is_told_once_however_often_it_is_read():
    text = (
        "func main<ios18>(tensor<fp16, [1,4,1,32]> x, tensor<fp16, [1,4,1,32]> z) {\n"
        "    tensor<fp16, [1,4,1,32]> a = tanh(x=x);\n"
        "    tensor<fp16, [1,4,1,32]> b = sigmoid(x=x);\n"
        "    tensor<fp16, [1,4,1,32]> y = add(x=a, y=b);\n} -> (y);\n"
    )
    assert len(diff(text, text.replace("=x)", "=z)"))) == 1


def test_a_value_computed_twice_or_for_nothing_is_a_difference():
    twice = SHORT.replace("x=m, y=t);", "x=m, y=t2);").replace(
        "    tensor<fp16, [1,4,1,32]> m",
        "    tensor<fp16, [1,4,1,32]> t2 = tanh(x=second);\n    tensor<fp16, [1,4,1,32]> m",
    )
    assert whats(SHORT, twice) == ["tanh that no output needs: 0 against 1"]
    shared = (
        "func main<ios18>(tensor<fp16, [1,4,1,32]> x) {\n"
        "    tensor<fp16, [1,4,1,32]> a = tanh(x=x);\n"
        "    tensor<fp16, [1,4,1,32]> b = tanh(x=x);\n"
        "    tensor<fp16, [1,4,1,32]> y = add(x=a, y=B);\n} -> (y);\n"
    )
    assert whats(shared.replace("B", "b"), shared.replace("B", "a")) == [
        "tanh: 2 statements against 1 for the same values",
        "tanh that no output needs: 0 against 1",
    ]


def test_one_value_in_place_of_another_is_a_difference():
    text = (
        "func main<ios18>(tensor<fp16, [1,4,1,32]> x) {\n"
        "    tensor<fp16, [1,4,1,32]> a = tanh(x=x);\n"
        "    tensor<fp16, [1,4,1,32]> b = sigmoid(x=a);\n"
        "    tensor<fp16, [1,4,1,32]> y = add(x=a, y=b);\n"
        "    tensor<fp16, [1,4,1,32]> z = mul(x=y, y=A);\n} -> (z);\n"
    )
    assert diff(text.replace("A", "a"), text.replace("A", "b"))
    assert diff(text.replace("A", "b"), text.replace("A", "a"))


def test_an_op_that_no_row_reads_is_compared_as_it_is_written():
    def unknown(n: int) -> str:
        return (
            "func main<ios18>(tensor<fp16, [1,4,1,32]> x) {\n"
            f"    tensor<fp16, [1,4,1,32]> y = some_op(x=x, depth={n});\n}} -> (y);\n"
        )

    assert diff(unknown(1), unknown(1)) == ()
    assert whats(unknown(1), unknown(2)) == ["some_op: parameters differ: depth: (1,) against (2,)"]


def products(first: str, second: str, **arrays: np.ndarray) -> Program:
    x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 32)))
    w = {name: o.weight(name, TensorType.of(array)) for name, array in arrays.items()}
    return compile_plain(
        Graph({"x": x}, {"y": o.conv1x1(o.conv1x1(x, w[first]), w[second])}), arrays
    )


def test_weights_are_compared_by_contents_where_both_have_them(rng):
    a, b = (rng.normal(size=(4, 4, 1, 1)).astype(np.float16) for _ in range(2))
    one = products("a", "b", a=a, b=b)
    assert diff(one, products("p", "q", p=a, q=b)) == ()
    other = b.copy()
    other[1, 2] += 1
    (found,) = diff(one, products("a", "b", a=a, b=other))
    assert "contents differ: 1 of 16 elements, first at [1, 2, 0, 0]" in found.what
    assert diff(one, products("b", "a", a=b, b=a)) == ()  # other names for the same
    assert len(diff(one, products("b", "a", a=a, b=b))) == 2


def test_weights_of_texts_alone_may_lie_elsewhere_but_not_serve_for_each_other(rng):
    a, b = (rng.normal(size=(4, 4, 1, 1)).astype(np.float16) for _ in range(2))
    one = products("a", "b", a=a, b=b).text
    assert diff(one, products("b", "a", a=a, b=b).text) == ()
    assert diff(one, products("a", "a", a=a).text)
    assert diff(products("a", "a", a=a).text, one)


def test_the_command_exits_with_1_where_they_differ(tmp_path, capsys):
    (tmp_path / "a.mil").write_text(DEVICE)
    (tmp_path / "b.mil").write_text(SHORT)
    (tmp_path / "c.mil").write_text(SHORT.replace("tanh", "sigmoid"))
    assert main(["diff", str(tmp_path / "a.mil"), str(tmp_path / "b.mil"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"equal": True, "differences": []}
    assert main(["diff", str(tmp_path / "a.mil"), str(tmp_path / "c.mil"), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["differences"]
    assert found["a"]["line"] == 6
    assert found["b"]["file"].endswith("c.mil")
    assert main(["diff", str(tmp_path / "a.mil"), str(tmp_path / "c.mil")]) == 1
    assert "b.mil" not in capsys.readouterr().out


def test_the_work_grows_no_faster_than_the_text():
    def chain(length: int) -> str:
        x = o.input_("x", TensorType(DType.FP16, (1, 4, 1, 32)))
        y = x
        for _ in range(length):
            y = y + y
        return emit(Graph({"x": x}, {"y": y})).text

    def calls(length: int) -> int:
        text = chain(length)
        return calls_of(lambda: diff(text, text.replace("add(", "mul(", 1)))

    calls(10)
    assert calls(2000) < 11 * calls(200)
