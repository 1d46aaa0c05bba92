"""Laws of what a parse remembers of the text, and of the tolerant parse."""

from __future__ import annotations

import pytest

from orion_ane.errors import MilError
from orion_ane.mil import parse
from orion_ane.mil.opaque import Opaque

TEXT = """func main<ios18>(tensor<fp16, [1,4,1,32]> x) {
    int32 axis = const()[name = string("axis"), val = int32(1)];
    tensor<fp16, [1,4,1,32]> a = softmax(x = x, axis = axis);
  tensor<fp16, [1,8,1,32]> b = concat(values = (a, x), axis = 1, interleave = bool(false));
} -> (b);
"""
FOREIGN = """func main<ios18>(tensor<fp16, [1,4,1,32]> x) {
    tensor<fp16, [1,4,1,32]> a = lstm(x = x, mode = "EXACT");
    tensor<fp16, [1,4,1,32]> b = relu(x = a, slope = 3);
    tensor<fp16, [1,4,1,32]> c = relu(x = nowhere);
    tensor<fp16, [1,4,1,32]> d = add(x = b, y = c);
} -> (d, gone);
"""


def test_a_statement_knows_its_op_its_names_and_its_place() -> None:
    (main,) = parse(TEXT).functions.values()
    assert [(s.op, s.results, s.place.line, s.place.column) for s in main.statements] == [
        ("const", ("axis",), 2, 5),
        ("softmax", ("a",), 3, 5),
        ("concat", ("b",), 4, 3),
    ]
    assert [(name, place.line) for name, place in main.ports] == [("x", 1), ("b", 5)]


def test_a_statement_knows_what_was_written_in_place() -> None:
    const, softmax, concat = next(iter(parse(TEXT).functions.values())).statements
    assert const.inline == ("val",)
    assert softmax.inline == ()
    assert concat.inline == ("axis", "interleave")
    assert softmax.args["axis"].elements == (1,)


def test_a_statement_holds_the_nodes_of_the_graph() -> None:
    (main,) = parse(TEXT).functions.values()
    const, softmax, concat = main.statements
    assert const.nodes == ()
    assert concat.nodes == (main.graph.outputs["b"],)
    assert concat.args["values"] == (softmax.nodes[0], main.graph.inputs["x"])


def test_a_tolerant_parse_keeps_what_no_row_reads_and_says_why() -> None:
    (main,) = parse(FOREIGN, tolerant=True).functions.values()
    problems = [s.problem and (s.problem.what, s.problem.line) for s in main.statements]
    assert problems == [
        ("no such op", 2),
        ("relu: unknown parameter", 3),
        ("no such value", 4),
        None,
    ]
    lstm, relu, lost, _ = main.statements
    assert lstm.nodes[0].op == Opaque("lstm", lstm.nodes[0].type)
    assert lstm.args["mode"].elements == ("EXACT",)
    assert relu.nodes[0].args == lstm.nodes
    assert lost.args == {}
    assert main.undefined == ("gone",)


def test_a_parse_is_strict_unless_asked() -> None:
    with pytest.raises(MilError, match="no such op: got lstm"):
        parse(FOREIGN)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("tensor<fp16, [1,4,1,32]> b = relu", "tensor<fp17, [1,4,1,32]> b = relu", "no such"),
        ("(d, gone)", "(gone)", "no such value: got gone"),
        ("tensor<fp16, [1,4,1,32]> a = lstm", "string a = lstm", "no such op"),
        ("add(x = b, y = c);\n} -> (d, gone);\n", "add(x = q", "no such value: got q"),
    ],
)
def test_a_tolerant_parse_refuses_what_it_cannot_pass_over(old: str, new: str, what: str) -> None:
    assert old in FOREIGN
    with pytest.raises(MilError, match=what):
        parse(FOREIGN.replace(old, new), tolerant=True)
