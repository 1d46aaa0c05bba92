"""Constants in text: exact both ways, in each form."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.errors import MilError
from orion_ane.ir import Graph
from orion_ane.mil import IOS16, IOS18, emit, parse_graph
from orion_ane.mil.lex import Tokens, quoted
from orion_ane.ops import Const, const, identity, input_
from orion_ane.types import Array, DType, TensorType

FP16, FP32, INT32, BOOL = DType.FP16, DType.FP32, DType.INT32, DType.BOOL


def returned(text: str) -> Array:
    """The constant that the text's statement `y = const()` holds."""
    graph = parse_graph(f"func main<ios18>() {{ {text} }} -> (y);")
    assert isinstance(graph.outputs["y"].op, Const)
    return graph.outputs["y"].op.value


def round_trip(value: Array, *, dialect=IOS18, short: bool = False) -> Array:
    """A constant, added to an input of its type, after a way through text."""
    of = TensorType.of(value)
    node = const(value, of.dtype)
    graph = Graph({"x": input_("x", of)}, {"y": identity(node)})
    back = parse_graph(emit(graph, dialect=dialect, short=short).text)
    assert isinstance(back.outputs["y"].args[0].op, Const)
    return back.outputs["y"].args[0].op.value


@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
def test_every_fp16_value_comes_back(short):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    back = round_trip(every[~np.isnan(every)], short=short)
    assert np.array_equal(back.view(np.uint16), every[~np.isnan(every)].view(np.uint16))


@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_every_fp32_value_comes_back(short, values):
    array = np.array(values, np.float32)
    back = round_trip(array, short=short)
    assert np.array_equal(back.view(np.uint32), array.view(np.uint32))


def test_a_value_whose_shortest_decimal_rounds_twice_comes_back():
    value = np.array([7.038530691851209e-26], np.float32)
    assert str(value[0]) == "7.038531e-26"
    assert np.float32(float("7.038531e-26")) != value[0]  # by way of float64, as a text is read
    assert np.array_equal(round_trip(value, short=True), value)


@pytest.mark.parametrize("dialect", [IOS16, IOS18], ids=["ios16", "ios18"])
@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
def test_what_is_not_a_number_or_not_finite_comes_back(dialect, short):
    array = np.array([[nan, inf], [-inf, -0.0]], np.float16)
    back = round_trip(array, dialect=dialect, short=short)
    assert np.array_equal(back.view(np.uint16), array.view(np.uint16))


@pytest.mark.parametrize("dtype", [d for d in DType if not d.is_float], ids=str)
def test_the_ends_of_every_integer_type_come_back(dtype):
    info = None if dtype is BOOL else np.iinfo(dtype.numpy)
    ends = [0, 1] if info is None else [info.min, 0, info.max]
    array = np.array(ends, dtype.numpy).reshape(1, -1)
    assert np.array_equal(round_trip(array), array)


WRITTEN = [
    ('fp16 y = const()[name = string("y"), val = fp16(-0x1.388p+13)];', np.float16(-10000)),
    ("fp16 y = const()[val = fp16(0x1p-3)];", np.float16(0.125)),
    ("fp16 y = const()[val = fp16(-inf)];", np.float16(-inf)),
    ("fp32 y = const()[val = fp32(1.5e-3)];", np.float32(1.5e-3)),
    ("fp32 y = const()[val = fp32(-3)];", np.float32(-3)),
    ("fp32 y = const()[val = fp32(.5)];", np.float32(0.5)),
    ("fp32 y = const()[val = fp32(0X1.8P1)];", np.float32(3)),
    ("bool y = const()[val = bool(true)];", np.True_),
    ("int32 y = const()[val = int32(-7)];", np.int32(-7)),
    ("int32 y = const()[val = 12];", np.int32(12)),
    ("uint8 y = const()[val = uint8(0xff)];", np.uint8(255)),
    ('int32 y = const(val = int32(4))[name = string("y")];', np.int32(4)),
    ("tensor<int32, []> y = const()[val = tensor<int32, []>(1)];", np.int32(1)),
    ("tensor<int32, []> y = const()[val = int32(1)];", np.int32(1)),
    (
        "tensor<bool, [2]> y = const()[val = tensor<bool, [2]>([true, false])];",
        np.array([True, False]),
    ),
    (
        "tensor<fp16, [2,2]> y = const()[val = tensor<fp16, [2, 2]>([[0x1p+0, -2], [nan, inf]])];",
        np.array([[1, -2], [nan, inf]], np.float16),
    ),
    (
        "tensor<int32, [1, 2, 1]> y = const()[val = tensor<int32, [1, 2, 1]>([[[-1], [2]]])];",
        np.array([[[-1], [2]]], np.int32),
    ),
    (
        "tensor < fp32 ,[ 2 ] > y=const( ) [val=tensor/* ten */<fp32,[2]>([1,\n2 // two\n])] ;",
        np.array([1, 2], np.float32),
    ),
]


@pytest.mark.parametrize(("text", "value"), WRITTEN, ids=[text for text, _ in WRITTEN])
def test_a_constant_reads_as_it_is_written(text, value):
    found = returned(text)
    assert found.dtype == value.dtype
    assert np.array_equal(found, value, equal_nan=value.dtype.kind == "f")


def test_a_decimal_rounds_to_the_nearest_value_of_its_type():
    assert returned("fp16 y = const()[val = fp16(0.1)];") == np.float16(0.1)
    assert returned("fp32 y = const()[val = fp32(0.1)];") == np.float32(0.1)
    assert returned("fp16 y = const()[val = fp16(65519.9)];") == np.float16(65504)


REFUSED = [
    ("fp16 y = const()[val = fp16(65520)];", "does not fit fp16: got 65520.0"),
    ("fp16 y = const()[val = fp16(-1e9)];", "does not fit fp16"),  # case N01
    ("fp32 y = const()[val = fp32(1e39)];", "does not fit fp32"),
    ("int32 y = const()[val = int32(2147483648)];", "does not fit int32: got 2147483648"),
    ("uint8 y = const()[val = uint8(-1)];", "does not fit uint8"),
    ("int32 y = const()[val = int32(1.5)];", "not a constant of int32: got 1.5"),
    ("int32 y = const()[val = int32(true)];", "not a constant of int32"),
    ("bool y = const()[val = bool(1)];", "not a constant of bool"),
    ('fp16 y = const()[val = fp16("1")];', "not a constant of fp16"),
    ("string y = const()[val = string(1)];", "not a constant of string"),
    ("fp16 y = const()[val = fp16([1])];", "constant has another shape: got [1], want fp16[]"),
    ("tensor<fp16, [2]> y = const()[val = tensor<fp16, [2]>([1])];", "another shape"),
    ("tensor<fp16, [2,2]> y = const()[val = tensor<fp16, [2,2]>([1,2,3,4])];", "another shape"),
    ("tensor<fp16, [2,2]> y = const()[val = tensor<fp16, [2,2]>([[1,2],[3]])];", "list is ragged"),
    ("tensor<fp16, [2]> y = const()[val = tensor<fp16, [2]>([1,[2]])];", "list is ragged"),
    ("fp32 y = const()[val = fp16(1)];", "value has another type: got fp16[], want fp32[]"),
    ("int4 y = const()[val = int4(1)];", "element type not supported"),
    ("bf16 y = const()[val = bf16(1)];", "element type not supported"),
    ("uint64 y = const()[val = uint64(1)];", "element type not supported"),
    ('string y = const()[val = string("a")];', "element type not supported: got string[]"),
    ("tensor<int32, [0]> y = const()[val = tensor<int32, [0]>([])];", "sizes start at 1"),
    ("fp32 y = const()[val = fp32(1.2.3)];", "not a number: got 1.2.3"),
    ("fp32 y = const()[val = fp32(0x)];", "not a number: got 0x"),
    ("fp32 y = const()[val = fp32(0x1p99999)];", "not a number"),
    ("fp32 y = const()[val = fp32(1e999)];", "not a number"),
    ("fp32 y = const()[val = fp32(1_0)];", "unexpected: got '_0', want ')'"),
    ("fp32 y = const()[val = fp32(x)];", "unexpected: got 'x', want a literal"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[text for text, _ in REFUSED])
def test_a_constant_that_is_none_is_refused_with_its_place(text, says):
    with pytest.raises(MilError) as refused:
        returned(text)
    assert says in str(refused.value)
    assert (refused.value.line, refused.value.column is None) == (1, False)


@given(st.text(max_size=20))
def test_a_string_comes_back_or_is_refused(text):
    try:
        written = quoted(text)
    except MilError as refused:
        assert "not a string of MIL" in str(refused)  # noqa: PT017 (either outcome is right)
        return
    assert Tokens(written).string() == text


@pytest.mark.parametrize("text", ["", 'say "hi"', "a\\b", "two\nlines\tand a tab\r", "naïve λ"])
def test_usual_strings_come_back(text):
    assert Tokens(quoted(text)).string() == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('"a', "does not end"),
        ('"a\n"', "does not end"),
        ('"\\', "does not end"),
        ('"\\q"', "no such escape"),
        ("'a'", "want a string"),
    ],
)
def test_a_string_that_is_none_is_refused(text, says):
    with pytest.raises(MilError, match=says):
        Tokens(text).string()
