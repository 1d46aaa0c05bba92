"""What a row takes of a parsed statement, and what it is told where that is not there."""

from __future__ import annotations

import pytest
from ops.samples import typed

from orion_ane.errors import MilError
from orion_ane.ir import MilArgs
from orion_ane.ops import const, input_
from orion_ane.types import DType

X = input_("x", typed("fp16[2]"))
HALF = const(0.5, DType.FP16)


def args(**literals) -> MilArgs:
    return MilArgs(
        "op",
        nodes={"x": X, "half": HALF},
        literals={"half": 0.5, **literals},
        tuples={"values": (X, X)},
        opset=18,
    )


def test_what_is_not_taken_is_left_over():
    given = args(flag=True)
    assert given.leftover == ("flag", "half", "values", "x")
    assert given.node("x") is X
    assert given.flag("flag") is True
    assert given.leftover == ("half", "values")
    assert given.number("half") == 0.5
    assert given.nodes("values") == (X, X)
    assert given.leftover == ()


def test_a_constant_is_a_value_and_a_parameter():
    assert args().node("half") is HALF
    assert args().number("half") == 0.5
    assert "half" in args()
    assert "other" not in args()


def test_an_optional_value_may_be_missing():
    assert args().maybe("x") is X
    assert args().maybe("other") is None


def test_one_value_is_a_tuple_of_itself():
    assert args().nodes("x") == (X,)


def test_a_default_stands_in_for_what_is_not_written():
    given = args()
    assert given.flag("f", default=False) is False
    assert given.integer("i", 3) == 3
    assert given.number("n", 0.0) == 0.0
    assert given.text("t", "valid") == "valid"
    assert given.integers("is", (1, 2)) == (1, 2)
    assert given.flags("fs", ()) == ()


def test_lists_take_a_lone_value():
    given = args(one=1, many=(1, 2), yes=True, both=(True, False), none=())
    assert given.integers("one") == (1,)
    assert given.integers("many") == (1, 2)
    assert given.integers("none") == ()
    assert given.flags("yes") == (True,)
    assert given.flags("both") == (True, False)


def test_a_whole_number_is_a_number():
    assert args(n=2).number("n") == 2.0


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda a: a.node("other"), "op: missing argument: want other"),
        (lambda a: a.node("values"), "op: values has the wrong kind: want one value"),
        (lambda a: a.nodes("other"), "op: missing argument: want other"),
        (lambda a: a.literal("other"), "op: missing argument: want other"),
        (lambda a: a.literal("x"), "op: not a constant: got x, want a constant parameter"),
        (lambda a: a.integer("values"), "op: not a constant: got values"),
        (lambda a: a.flag("one"), "op: one has the wrong type: got 1, want a bool"),
        (lambda a: a.integer("yes"), "op: yes has the wrong type: got True, want an int32"),
        (lambda a: a.integer("half"), "op: half has the wrong type: got 0.5, want an int32"),
        (lambda a: a.number("yes"), "op: yes has the wrong type: got True, want a float"),
        (lambda a: a.number("word"), "op: word has the wrong type: got ab, want a float"),
        (lambda a: a.text("one"), "op: one has the wrong type: got 1, want a string"),
        (lambda a: a.integers("both"), "op: both has the wrong type: got (1, True), want int32"),
        (lambda a: a.flags("both"), "op: both has the wrong type: got (1, True), want bool"),
        (lambda a: a.integers("word"), "op: word has the wrong type: got ab, want int32 values"),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_named(ask, says):
    with pytest.raises(MilError) as caught:
        ask(args(one=1, yes=True, word="ab", both=(1, True)))
    assert str(caught.value).startswith(says)
