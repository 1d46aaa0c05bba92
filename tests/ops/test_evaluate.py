"""The numpy meaning at its edges: rounding, masks, overflow, what is fed."""

from __future__ import annotations

from math import inf, isnan, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.samples import typed
from oracles import evaluate64

from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, Node
from orion_ane.ops import (
    cast,
    clip,
    concat,
    const,
    evaluate,
    evaluate_op,
    exp,
    input_,
    matmul,
    maximum,
    power,
    reduce_max,
    reduce_mean,
    reduce_sum,
    relu,
    rsqrt,
    sigmoid,
    softmax,
    sqrt,
    unbroadcast,
    weight,
)
from orion_ane.ops.arithmetic import Maximum, Pow, RealDiv, Select
from orion_ane.ops.curve import Sigmoid
from orion_ane.ops.leaf import MAX_CONST_ELEMENTS, Const
from orion_ane.ops.reduction import stretch
from orion_ane.ops.shape import Cast
from orion_ane.types import DType, TensorType

FP16, FP32, INT32, BOOL = DType.FP16, DType.FP32, DType.INT32, DType.BOOL


def run(make, *values):
    """What `make` computes of inputs that hold the values."""
    nodes = [input_(f"x{i}", TensorType.of(v)) for i, v in enumerate(values)]
    graph = Graph({node.op.label: node for node in nodes}, {"y": make(*nodes)})
    return evaluate(graph, {node.op.label: v for node, v in zip(nodes, values, strict=True)})["y"]


def half(*values):
    return np.array(values, np.float16)


# constants


@pytest.mark.parametrize("value", [-1e9, -1e10, -3.4028235e38, 65520.0])
def test_n01_a_constant_that_fp16_does_not_hold_is_refused(value):
    with pytest.raises(ShapeError, match=r"const: does not fit fp16: got .*, want at most 65504"):
        const(value, FP16)


@pytest.mark.parametrize(
    ("value", "held"),
    [(-1e4, -1e4), (-65504, -65504), (65519.9, 65504), (-inf, -inf), (1e-8, 0), (5.96e-8, 2**-24)],
)
def test_n01_n17_a_constant_rounds_to_nearest_even(value, held):
    assert const(value, FP16).op.value == np.float16(held)


@pytest.mark.parametrize(
    ("value", "dtype", "got"),
    [
        ([1, 2**31], INT32, 2**31),
        ([0, 0.5], INT32, 0.5),
        (nan, INT32, nan),
        ([1, 2], BOOL, 2),
        ([0, -1], DType.UINT8, -1),
        ("a", FP16, "a"),
        (2**70, FP16, 2**70),
        ([1.0, 1e5], FP16, 100000.0),
    ],
)
def test_a_constant_that_its_type_does_not_hold_is_refused_by_value(value, dtype, got):
    with pytest.raises(ShapeError, match=f"const: does not fit {dtype}: got {got}"):
        const(value, dtype)


def test_a_constant_keeps_its_values_whatever_their_layout():
    value = np.arange(6.0).reshape(2, 3).T
    assert np.array_equal(const(value, FP32).op.value, value)
    assert const(value, FP32).op == const(value.copy(), FP32).op
    assert const(3, FP16).type == TensorType(FP16)
    with pytest.raises(ValueError, match="read-only"):
        const(value, FP32).op.value[0] = 1


def test_a_long_constant_belongs_in_a_blob():
    with pytest.raises(ShapeError, match=r"const: too long for the text: .*\n  hint: make it a w"):
        const(np.zeros(MAX_CONST_ELEMENTS + 1), FP16)
    with pytest.raises(ShapeError, match="const: wrong number of bytes: got 3, want 4"):
        Const(TensorType(FP16, (2,)), b"123")


def test_a_constant_prints_its_first_values():
    assert repr(const([1, 2, 3, 4], FP16).op) == "Const(fp16[4], [1.0, 2.0, 3.0, 4.0])"
    assert repr(const(range(5), INT32).op) == "Const(int32[5], [0, 1, 2, 3] …)"


def test_stretching_a_cotangent_writes_a_short_text():
    # A product over [C, S] of ones would not fit a text; one axis at a time does.
    big = TensorType(FP16, (1, 2048, 1, 1024))
    dy = reduce_sum(input_("x", big), (1, 3))
    wide = stretch(dy, big)
    assert wide.type == big
    lengths = [arg.type.elements for arg in (*wide.args, *wide.args[0].args) if not arg.args]
    assert max(lengths) == 2048


def test_a_cotangent_that_was_not_stretched_is_handed_on_as_it_is():
    dy = input_("dy", typed("fp32[1,3]"))
    assert unbroadcast(dy, dy.type) is dy
    assert unbroadcast(dy, typed("fp32[3]")).args == (dy,)  # reshaped, nothing summed


# parameters


def test_a_builder_rounds_a_parameter_to_the_type_it_will_be_written_in():
    x, wide = input_("x", typed("fp16[2]")), input_("x", typed("fp32[2]"))
    assert rsqrt(x, 1e-5).op.eps == float(np.float16(1e-5))
    assert rsqrt(wide, 1e-5).op.eps == float(np.float32(1e-5))
    assert clip(x, -0.1, 0.1).op.hi == float(np.float16(0.1))
    assert power(x, 0.1).op.p == float(np.float16(0.1))


def test_a_builder_refuses_a_parameter_that_its_type_loses():
    x = input_("x", typed("fp16[2]"))
    with pytest.raises(ShapeError, match="rsqrt: eps vanishes in fp16: got 1e-08"):
        rsqrt(x, 1e-8)
    with pytest.raises(ShapeError, match=r"clip: does not fit fp16: got -1000000000\.0, want at"):
        clip(x, -1e9, 1.0)  # case N01
    with pytest.raises(ShapeError, match="pow: the power is not finite: got nan"):
        power(x, nan)
    with pytest.raises(ShapeError, match="pow: NaN: a negative base"):
        power(const([1.0, -2.0], FP16), 0.5)
    assert power(const([1.0, -2.0], FP16), 2).type == typed("fp16[2]")
    assert power(const([0.0, 0.5], FP16), 0.5).type == typed("fp16[2]")


@pytest.mark.parametrize("make", [reduce_sum, reduce_mean, reduce_max])
def test_a_builder_counts_axes_from_the_front_and_refuses_others_as_written(make):
    x = input_("x", typed("fp16[1,64,1,16]"))
    assert make(x, (-1, 1)).op.axes == (3, 1)
    for axis in (7, 4, -5):
        with pytest.raises(ShapeError, match=f"no such axis: got {axis} for x"):
            make(x, (axis,))


def test_concat_counts_its_axis_from_the_front_and_refuses_others_as_written():
    x = input_("x", typed("fp16[2,3]"))
    assert concat(x, x, axis=-1).op.axis == 1
    with pytest.raises(ShapeError, match="concat: no such axis: got 2 for x fp16"):
        concat(x, x, axis=2)
    with pytest.raises(ShapeError, match="concat: wrong number of operands"):
        concat(axis=0)


# rounding


def test_a_sum_is_kept_in_fp32_and_rounded_once():
    # In fp16 steps, 2048 + 1 stays 2048.
    values = half(2048, *([1] * 8))
    assert run(lambda x: reduce_sum(x, (0,)), values) == 2056
    assert run(lambda x: reduce_mean(x, (0,)), np.full(4, 60000, np.float16)) == 60000


def test_a_product_overflows_where_fp16_does_and_not_before():
    # Case N15, on the portable meaning: 33 · 1000 is 33000, which fp16 holds as 32992.
    x, y = np.full((1, 33), 1000, np.float16), np.ones((33, 1), np.float16)
    assert run(matmul, x, y) == 32992
    assert run(lambda a: a * a, half(300)) == inf
    assert run(exp, half(11.1)) == inf
    assert np.isfinite(run(exp, half(11.08)))


def test_n17_rounding_to_fp16():
    found = run(lambda x: cast(x, FP16), np.array([65519.9, 65520, 5.96e-8, 1e-8], np.float32))
    np.testing.assert_array_equal(found, half(65504, inf, 2**-24, 0))


@given(st.integers(0, 2**32 - 1))
def test_a_cast_to_integers_truncates_and_saturates_everywhere_alike(seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(0, 1e3, 20), [inf, -inf, nan, 3e9, -3e9, 2**31, -0.9, 1.9]])
    for to in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, INT32):
        held = np.iinfo(to.numpy)
        for value in (x.astype(np.float32), x):
            wanted = [0 if isnan(v) else int(min(max(float(v), held.min), held.max)) for v in value]
            np.testing.assert_array_equal(Cast(to).eval((value,)), wanted)


def test_casts_between_bools_and_numbers():
    assert run(lambda x: cast(x, BOOL), half(0, -0.0, 0.1, nan, inf)).tolist() == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert run(lambda x: cast(x, FP16), np.array([True, False])).tolist() == [1.0, 0.0]
    assert run(lambda x: cast(x, FP16), np.array([70000, -70000], np.int32)).tolist() == [inf, -inf]


# masks and shifts


def test_n03_softmax_of_an_all_masked_row_is_zeros_and_leaves_its_neighbour():
    scores = half(*[-inf] * 4, 0, -inf, -inf, -inf).reshape(2, 4)
    for values in (scores, scores.astype(np.float32)):
        found = run(lambda x: softmax(x, 1), values)
        np.testing.assert_array_equal(found, [[0, 0, 0, 0], [1, 0, 0, 0]])
    found = run(lambda x: softmax(x, 0), scores.T.copy())
    np.testing.assert_array_equal(found, [[0, 1], [0, 0], [0, 0], [0, 0]])


def test_n03_the_gradient_of_a_masked_row_is_zero():
    x, dy = input_("x", typed("fp32[1,4]")), input_("dy", typed("fp32[1,4]"))
    y = softmax(x, 1)
    (dx,) = y.op.grad(y, dy)
    (found,) = evaluate64([dx], {x: np.full((1, 4), -inf), dy: np.ones((1, 4))})
    np.testing.assert_array_equal(found, np.zeros((1, 4)))


def test_softmax_does_not_overflow():
    found = run(lambda x: softmax(x, 0), half(65504, 65504, -65504))
    np.testing.assert_array_equal(found, half(0.5, 0.5, 0))
    assert np.isnan(run(lambda x: softmax(x, 0), half(nan, 0))).all()


@pytest.mark.parametrize(
    ("count", "value", "result"),
    [(32, 10.0, 13.465736), (50257, 0.0, 10.824905), (32000, 0.0, 10.373491)],
)
def test_n13_a_log_sum_exp_is_shifted_by_the_maximum(count, value, result):
    def log_sum(x: Node) -> Node:
        return reduce_sum(exp(x - reduce_max(x, (0,))), (0,))

    found = run(log_sum, np.full(count, value, np.float16).astype(np.float32))
    assert log(found.item()) + value == pytest.approx(result, abs=1e-5)
    # Unshifted, 32 copies of 10 leave fp16: e¹⁰ · 32 is above 65504.
    assert run(lambda x: reduce_sum(exp(x), (0,)), np.full(32, 10, np.float16)) == inf


def test_n07_squares_are_summed_in_fp32():
    # 768 squares of 10 are 76800: above fp16's largest, but their mean is 100.
    x = np.full(768, 10, np.float16)
    found = run(lambda x: x * rsqrt(reduce_mean(x * x, (0,)), 0.0), x)
    np.testing.assert_allclose(found, 1.0, atol=1e-3)


# edges of the curves


def test_sigmoid_is_stable_on_both_sides():
    x = np.array([-1e4, -100, 0, 100, 1e4, inf, -inf], np.float32)
    y = Sigmoid().eval((x,))
    assert y[[0, 2, 3, 4, 5, 6]].tolist() == [0, 0.5, 1, 1, 1, 0]
    assert 0 < y[1] < 1e-43
    assert np.isnan(run(sigmoid, half(nan)))


def test_roots_and_quotients_go_where_ieee_says():
    assert np.isnan(run(sqrt, half(-1)))
    assert run(lambda x: rsqrt(x, 0.0), half(0)) == inf
    assert run(lambda x, y: x / y, half(1), half(0)) == inf
    assert np.isnan(run(lambda x, y: x / y, half(0), half(0)))
    assert np.isnan(run(lambda x: power(x, 0.5), half(-1)))
    assert run(lambda x: power(x, -1), half(0)) == inf
    assert np.isnan(run(maximum, half(nan), half(1)))
    assert np.isnan(run(relu, half(nan)))


def test_the_zeroth_power_is_flat_at_zero_too():
    x, dy = input_("x", typed("fp32[3]")), input_("dy", typed("fp32[3]"))
    y = power(x, 0.0)
    (dx,) = y.op.grad(y, dy)
    (found,) = evaluate64([dx], {x: np.array([0.0, 1.0, -2.0]), dy: np.ones(3)})
    np.testing.assert_array_equal(found, np.zeros(3))


def test_at_a_tie_the_gradient_goes_to_one_side_whole():
    of = typed("fp32[2]")
    x, y, dy = input_("x", of), input_("y", of), input_("dy", of)
    z = Node(Maximum(), (x, y))
    fed = {x: np.ones(2), y: np.ones(2), dy: np.full(2, 3.0)}
    dx, d_y = evaluate64(z.op.grad(z, dy), fed)
    assert (dx + d_y).tolist() == [3, 3]
    assert dx.tolist() == [3, 3]


def test_clip_passes_the_gradient_at_its_bounds_and_relu_does_not_at_zero():
    x, dy = input_("x", typed("fp32[5]")), input_("dy", typed("fp32[5]"))
    fed = {x: np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), dy: np.ones(5)}
    for y, wanted in ((clip(x, -1.0, 1.0), [0, 1, 1, 1, 0]), (relu(x), [0, 0, 0, 1, 1])):
        (found,) = evaluate64(y.op.grad(y, dy), fed)
        assert found.tolist() == wanted


@pytest.mark.parametrize("cond", [True, False])
def test_select_does_not_look_at_what_it_does_not_choose(cond):
    found = Select().eval((np.array(cond), np.array([1.0, nan]), np.array([nan, 2.0])))
    assert np.isnan(found).tolist() == [not cond, cond]


# what is fed


def test_a_value_that_is_missing_or_of_another_type_is_named():
    x, w = input_("label", typed("fp16[2]")), weight("w", typed("fp16[2]"))
    graph = Graph({"x": x}, {"y": x * w})
    good = np.ones(2, np.float16)
    assert evaluate(graph, {"x": good}, {"w": good})["y"].tolist() == [1, 1]
    for fed, weights, says in [
        ({}, {"w": good}, "input x: no fitting value: want fp16[2]"),
        ({"x": good}, {}, "weight w: no fitting value: want fp16[2]"),
        ({"x": good}, None, "weight w: no fitting value: want fp16[2]"),
        (
            {"x": good.astype(np.float64)},
            {"w": good},
            "input x: no fitting value: got float64[2], want fp16[2]",
        ),
        (
            {"x": good},
            {"w": np.ones(3, np.float16)},
            "weight w: no fitting value: got float16[3], want fp16[2]",
        ),
    ]:
        with pytest.raises(ShapeError) as caught:
            evaluate(graph, fed, weights)
        assert str(caught.value) == says


@pytest.mark.parametrize("leaf", [input_("x", typed("fp16[2]")), weight("w", typed("fp16[2]"))])
def test_a_leaf_has_no_value_of_its_own(leaf):
    with pytest.raises(ShapeError, match="no value was fed"):
        leaf.op.eval(())


def test_a_quotient_by_fp16_operands_is_rounded_once():
    x, y = half(1, 2, 10), half(3, 3, 7)
    wide = (x.astype(np.float64) / y.astype(np.float64)).astype(np.float16)
    assert evaluate_op(RealDiv(), (x, y), typed("fp16[3]")).tolist() == wide.tolist()
    assert evaluate_op(Pow(3.0), (x,), typed("fp16[3]")).tolist() == [1, 8, 1000]
