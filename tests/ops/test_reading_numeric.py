"""What numeric statements of converters read as: their words, defaults and older forms."""

from __future__ import annotations

import numpy as np
import pytest
from ops.sampling import typed
from ops.test_reading import read, value_of

from orion_ane.errors import MilError, OrionError, ShapeError
from orion_ane.ops import const, input_, weight
from orion_ane.ops.foreign.activation import Elu
from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.pooling import AvgPool, MaxPool
from orion_ane.ops.foreign.quantization import Dequantize, Quantize
from orion_ane.ops.foreign.unary import Inverse, Log
from orion_ane.types import DType

FP16, FP32, INT8 = DType.FP16, DType.FP32, DType.INT8


def drawn(of: str, rng) -> np.ndarray:
    t = typed(of)
    return rng.standard_normal(t.shape).astype(t.dtype.numpy)


@pytest.mark.parametrize(
    ("pad_type", "size", "kernel", "stride", "pad"),
    [
        ("valid", 7, 3, 2, (0, 0)),
        ("same", 7, 3, 2, (1, 1)),
        ("same", 8, 3, 2, (0, 1)),
        ("same_lower", 8, 3, 2, (1, 0)),
        ("same", 4, 1, 3, (0, 0)),
        ("custom", 7, 3, 2, (2, 0)),
    ],
)
def test_words_for_padding_are_worked_out(pad_type, size, kernel, stride, pad):
    x = input_("x", typed(f"fp32[1,2,{size}]"))
    given = {"kernel_sizes": (kernel,), "strides": (stride,), "pad_type": pad_type, "pad": (2, 0)}
    assert read("max_pool", x=x, **given).op == MaxPool((kernel,), (stride,), pad)


def test_a_window_steps_by_one_and_counts_padding_unless_told():
    x = input_("x", typed("fp32[1,2,7]"))
    y = read("avg_pool", x=x, kernel_sizes=(3,), pad_type="valid")
    assert y.op == AvgPool((3,), (1,), (0, 0), ceil_mode=False, exclude=False)
    with pytest.raises(MilError, match="max_pool: no such pad_type: got other"):
        read("max_pool", x=x, kernel_sizes=(3,), pad_type="other")


@pytest.mark.parametrize(
    ("stride", "kernel", "op"),
    [
        (2, 3, ConvTranspose((2,), (0, 1), (1,))),
        (1, 4, ConvTranspose((1,), (1, 2), (1,))),
        (3, 2, ConvTranspose((3,), (0, 0), (1,), output_shape=(1, 5, 12))),
    ],
)
def test_a_transposed_convolution_of_same_gives_sizes_times_strides(stride, kernel, op):
    x, w = input_("x", typed("fp32[1,2,4]")), weight("w", typed(f"fp32[2,5,{kernel}]"))
    y = read("conv_transpose", x=x, weight=w, strides=(stride,), pad_type="same")
    assert y.op == op
    assert y.type == typed(f"fp32[1,5,{4 * stride}]")


@pytest.mark.parametrize("equation", ["nchw,nwhu->nchu", "abcd, adce -> abce", "chw,whr->chr"])
def test_an_einsum_is_what_numpy_makes_of_its_equation(equation, rng):
    plain = equation.replace(" ", "")
    batch = "2," if plain[0] in "na" else ""
    shapes = (f"fp32[{batch}3,4,5]", f"fp32[{batch}5,4,6]")
    x, y = (input_(name, typed(of)) for name, of in zip("xy", shapes, strict=True))
    a, b = (drawn(of, rng) for of in shapes)
    z = read("einsum", values=(x, y), equation=equation)
    np.testing.assert_allclose(value_of(z, {x: a, y: b}), np.einsum(plain, a, b), rtol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "nchw,nwhu", "nchw,nwhu->nchw", "abc,cbd->abd,"])
def test_another_equation_is_refused(equation):
    x = input_("x", typed("fp32[2,2,2]"))
    with pytest.raises(MilError, match="einsum: no such equation"):
        read("einsum", values=(x, x), equation=equation)
    with pytest.raises(MilError, match="einsum: operands do not fit"):
        read("einsum", values=(x, x), equation="nchw,nwhu->nchu")


def test_a_lone_constant_of_a_product_takes_the_other_sides_float_type():
    x, w = input_("x", typed("fp16[2,3]")), weight("w", typed("fp32[3,4]"))
    y = read("matmul", x=x, y=w)
    assert (y.type, y.args[1].op.name) == (typed("fp16[2,4]"), "cast")
    assert read("matmul", x=w, y=input_("y", typed("fp16[4,2]"))).type == typed("fp16[3,2]")
    with pytest.raises(ShapeError, match="matmul: element types differ"):
        read("matmul", x=x, y=input_("y", typed("fp32[3,4]")))


def test_integers_and_floats_are_multiplied_in_floats_where_one_side_is_constant():
    x, n = input_("x", typed("fp32[1,2]")), input_("n", typed("int32[1,2]"))
    whole, halves = const([[1], [3]], DType.INT32), const([[0.5], [0.25]], FP32)
    y = read("matmul", x=x, y=whole)
    assert value_of(y, {x: np.float32([[0.5, 0.5]])}).tolist() == [[2.0]]
    y = read("matmul", x=n, y=halves)
    assert y.type == typed("int32[1,1]")
    assert value_of(y, {n: np.int32([[3, 1]])}).tolist() == [[1]]
    w = const([[1, 3]], DType.INT32)
    assert value_of(read("linear", x=x, weight=w), {x: np.float32([[1, 0.5]])}).tolist() == [[2.5]]


def test_a_norm_without_scale_and_offset_has_ones_and_zeros():
    x, mean, variance = (input_("n", typed(f"fp32[{sizes}]")) for sizes in ("2,3,4", 3, 3))
    y = read("batch_norm", x=x, mean=mean, variance=variance)
    assert [arg.op.value.tolist() for arg in y.args[3:]] == [[1, 1, 1], [0, 0, 0]]
    assert y.op.eps == float(np.float32(1e-5))
    with pytest.raises(MilError, match="batch_norm: missing argument: want mean"):
        read("batch_norm", x=x, variance=variance)


def test_default_numbers_are_in_the_type_of_x():
    narrow, wide = input_("x", typed("fp16[2]")), input_("x", typed("fp32[2]"))
    assert read("log", x=narrow).op == Log(0.0)
    assert read("log", x=wide).op == Log(float(np.float32(1e-45)))
    assert read("inverse", x=narrow).op == Inverse(float(np.float16(1e-4)))
    assert read("elu", x=narrow, alpha=float(np.float32(0.1))).op == Elu(float(np.float32(0.1)))


@pytest.mark.parametrize("keep_dims", [True, False, None])
def test_the_place_of_the_largest_drops_its_axis_unless_told(keep_dims, rng):
    x, data = input_("x", typed("fp32[2,3,4]")), drawn("fp32[2,3,4]", rng)
    given = {} if keep_dims is None else {"keep_dims": keep_dims}
    for axis in (-1, 0, 1):
        y = read("reduce_argmax", x=x, axis=axis, output_dtype="uint16", **given)
        want = np.argmax(data, axis, keepdims=bool(keep_dims)).astype(np.uint16)
        np.testing.assert_array_equal(value_of(y, {x: data}), want)
        assert y.type.dtype is DType.UINT16
    with pytest.raises(MilError, match="reduce_argmax: no such output_dtype: got int8"):
        read("reduce_argmax", x=x, output_dtype="int8")


def test_a_mean_of_integers_is_cut():
    n = input_("n", typed("int32[4]"))
    y = read("reduce_mean", x=n, keep_dims=True)
    assert value_of(y, {n: np.int32([-1, -2, -2, -2])}).tolist() == [-1]


def test_a_zero_point_is_zero_unless_given():
    x, scale = input_("x", typed("fp16[2,3]")), const([0.5, 1, 2], FP16)
    y = read("quantize", input=x, scale=scale, axis=1, output_dtype="int8")
    assert (y.op, y.args[2].op.value.tolist()) == (Quantize(INT8, 1), [0, 0, 0])
    back = read("dequantize", input=y, scale=scale, axis=1)
    assert (back.op, back.type, back.args[2].type) == (Dequantize(1), x.type, typed("int8[3]"))
    with pytest.raises(MilError, match="quantize: no such output_dtype: got int32"):
        read("quantize", input=x, scale=scale, axis=1, output_dtype="int32")


def test_quantised_values_round_to_even_saturate_and_have_no_nan():
    x, one, zero = input_("x", typed("fp32[6]")), const(1, FP32), const(0, INT8)
    y = read("quantize", input=x, scale=one, zero_point=zero, output_dtype="int8")
    data = np.float32([0.5, 1.5, -2.5, 1e9, -np.inf, np.nan])
    assert value_of(y, {x: data}).tolist() == [0, 2, -2, 127, -128, 0]


def test_a_constant_cast_is_a_cast_to_fp32():
    x = const([1, 2], FP16)
    assert read("constexpr_cast", source_val=x, output_dtype="fp32").type == typed("fp32[2]")
    with pytest.raises(OrionError, match="constexpr_cast: no such output_dtype: got fp16"):
        read("constexpr_cast", source_val=x, output_dtype="fp16")
