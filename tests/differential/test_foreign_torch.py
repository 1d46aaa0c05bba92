"""Rows of converted models mean what torch means by them, on drawn shapes and parameters."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import values

from orion_ane.ir import Node
from orion_ane.ops import evaluate_op, input_
from orion_ane.ops.foreign import activation as a
from orion_ane.ops.foreign import binary as b
from orion_ane.ops.foreign import reductions as r
from orion_ane.ops.foreign import unary as u
from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.erf import error_function
from orion_ane.ops.foreign.normalization import BatchNorm, InstanceNorm, LocalResponseNorm
from orion_ane.ops.foreign.pooling import AvgPool, MaxPool
from orion_ane.ops.foreign.quantization import Quantize
from orion_ane.types import DType, TensorType

torch = oracles.torch()
F = torch.nn.functional

FP32_SUMS = 2e-6
"""Two orders of summing, or two libraries' transcendental functions, in fp32."""
FP32, INT32 = DType.FP32, DType.INT32

CURVES = {
    u.Abs(): torch.abs,
    u.Sign(): torch.sign,
    u.Square(): torch.square,
    u.Exp2(): torch.exp2,
    u.Ceil(): torch.ceil,
    u.Floor(): torch.floor,
    u.Round(): torch.round,
    u.Sin(): torch.sin,
    u.Cos(): torch.cos,
    u.Tan(): torch.tan,
    u.Asin(): torch.asin,
    u.Acos(): torch.acos,
    u.Atan(): torch.atan,
    u.Sinh(): torch.sinh,
    u.Cosh(): torch.cosh,
    u.Atanh(): torch.atanh,
    u.Erf(): torch.erf,
    u.Log(0.5): lambda x: torch.log(x + 0.5),
    u.Inverse(0.5): lambda x: 1 / (x + 0.5),
    u.Threshold(-0.25): lambda x: torch.clamp(x, min=-0.25),
    a.Relu6(): F.relu6,
    a.Softplus(): F.softplus,
    a.Softsign(): F.softsign,
    a.LeakyRelu(0.25): lambda x: F.leaky_relu(x, 0.25),
    a.Elu(0.75): lambda x: F.elu(x, 0.75),
    a.ThresholdedRelu(0.5): lambda x: torch.where(x >= 0.5, x, 0),
    a.ScaledTanh(0.5, 2.0): lambda x: 0.5 * torch.tanh(2 * x),
    a.SigmoidHard(0.25, 0.5): lambda x: torch.clamp(0.25 * x + 0.5, 0, 1),
    a.LinearActivation(0.25, 0.5): lambda x: 0.25 * x + 0.5,
    a.ClampedRelu(0.25, 1.0): lambda x: torch.clamp(F.leaky_relu(x, 0.25), max=1),
}
PAIRS = {
    b.Equal(): torch.eq,
    b.NotEqual(): torch.ne,
    b.Greater(): torch.gt,
    b.Less(): torch.lt,
    b.LessEqual(): torch.le,
    b.Minimum(): torch.minimum,
    b.FloorDiv(): torch.floor_divide,
    b.Mod(): torch.remainder,
}
FOLDS = {
    r.ReduceMin: torch.amin,
    r.ReduceL1Norm: lambda x, axes, keepdim: x.abs().sum(axes, keepdim),
    r.ReduceL2Norm: lambda x, axes, keepdim: torch.linalg.vector_norm(x, 2, axes, keepdim),
    r.ReduceSumSquare: lambda x, axes, keepdim: (x * x).sum(axes, keepdim),
    r.ReduceLogSumExp: torch.logsumexp,
}


def drawn(shape, seed: int, lo: float = -3.0, hi: float = 3.0, dtype: DType = FP32):
    return values(TensorType(dtype, tuple(shape)), np.random.default_rng(seed), lo, hi)


def agree(op, *arrays, want) -> None:
    """That the row gives what torch gave."""
    nodes = tuple(input_("x", TensorType.of(array)) for array in arrays)
    ours = evaluate_op(op, arrays, Node(op, nodes).type)
    want = want.numpy()
    assert ours.shape == want.shape
    np.testing.assert_allclose(ours, want, rtol=FP32_SUMS, atol=FP32_SUMS, equal_nan=True)


@pytest.mark.parametrize("op", CURVES, ids=str)
def test_torch_agrees_on_a_curve(op):
    x = np.concatenate([drawn((400,), 1), np.float32([0, -0.0, 1, -1, 0.5, -0.5, 6, -0.25])])
    agree(op, x, want=CURVES[op](torch.from_numpy(x)).float())


@pytest.mark.parametrize("dtype", [FP32, INT32], ids=str)
@pytest.mark.parametrize("op", PAIRS, ids=str)
def test_torch_agrees_on_a_pair(op, dtype):
    x, y = drawn((7, 1, 9), 1, -9, 9, dtype), drawn((8, 1), 2, -9, 9, dtype)
    y[y == 0] = 1
    agree(op, x, y, want=PAIRS[op](torch.from_numpy(x), torch.from_numpy(y)))


def test_torch_agrees_on_a_power():
    x, y = drawn((7, 1, 9), 1, 0.25, 3), drawn((8, 1), 2)
    agree(b.PowBy(), x, y, want=torch.pow(torch.from_numpy(x), torch.from_numpy(y)))


@pytest.mark.parametrize("axes", [(0,), (-1,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("row", FOLDS, ids=lambda row: row.__name__)
def test_torch_agrees_on_a_reduction(row, axes):
    x = drawn((3, 4, 5), 1)
    agree(row(axes), x, want=FOLDS[row](torch.from_numpy(x), axes, keepdim=True))


def test_a_log_sum_exp_neither_overflows_nor_loses_a_masked_row():
    x = np.float32([[1000, 999], [-np.inf, -np.inf], [np.inf, 0], [-1000, -1001]])
    agree(r.ReduceLogSumExp((1,)), x, want=torch.logsumexp(torch.from_numpy(x), 1, keepdim=True))


def test_softplus_is_right_at_both_ends():
    x = np.float32([-200, -20, 0, 20, 200, 10.41])
    agree(a.Softplus(), x, want=torch.logaddexp(torch.from_numpy(x), torch.zeros(1)))


def test_the_error_function_is_that_of_the_c_library_to_the_last_places():
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, 1e-300, np.inf, -np.inf]])
    want = np.array([math.erf(value) for value in x])
    np.testing.assert_allclose(error_function(x), want, rtol=1e-14, atol=0)
    assert np.isnan(error_function(np.array([np.nan]))).all()


@st.composite
def walks(draw):
    """An image's shape, and a window, strides and symmetric padding that torch takes."""
    axes = draw(st.integers(1, 3))
    each = st.integers(1, 3)
    kernel, strides = (tuple(draw(each) for _ in range(axes)) for _ in range(2))
    pad = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    sizes = tuple(draw(st.integers(k, k + 4)) for k in kernel)
    return (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes), kernel, strides, pad


def doubled(pad: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in pad for _ in "ab")


@settings(max_examples=60)
@given(walks(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_torch_agrees_on_windows(walk, ceil_mode, exclude, seed):
    shape, kernel, strides, pad = walk
    axes = len(kernel)
    x = drawn(shape, seed)
    largest, mean = (
        (F.max_pool1d, F.max_pool2d, F.max_pool3d),
        (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
    )
    op = MaxPool(kernel, strides, doubled(pad), ceil_mode)
    want = largest[axes - 1](torch.from_numpy(x), kernel, strides, pad, ceil_mode=ceil_mode)
    steps = zip(pad, op.steps(shape), want.shape[2:], strict=True)
    if any(not padded and ours != theirs for padded, ours, theirs in steps):
        return  # torch drops a last step that begins outside also where nothing is padded
    agree(op, x, want=want)
    want = mean[axes - 1](torch.from_numpy(x), kernel, strides, pad, ceil_mode, not exclude)
    agree(AvgPool(kernel, strides, doubled(pad), ceil_mode, exclude), x, want=want)


@settings(max_examples=60)
@given(walks(), st.integers(1, 2), st.integers(1, 2), st.booleans(), st.data())
def test_torch_agrees_on_transposed_convolutions(walk, groups, dilation, has_bias, data):
    (n, _, *sizes), kernel, strides, pad = walk
    axes, seed = len(kernel), data.draw(st.integers(0, 99))
    dilations = (dilation,) * axes
    extra = tuple(data.draw(st.integers(0, max(s, dilation) - 1)) for s in strides)
    x, w = drawn((n, 2 * groups, *sizes), seed), drawn((2 * groups, 3, *kernel), seed + 1)
    bias = drawn((3 * groups,), seed + 2)
    turned = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    with_bias = torch.from_numpy(bias) if has_bias else None
    want = turned(
        *(torch.from_numpy(x), torch.from_numpy(w), with_bias, strides, pad),
        *(extra, groups, dilations),
    )
    shape = tuple(want.shape) if any(extra) else ()
    op = ConvTranspose(strides, doubled(pad), dilations, groups, has_bias, shape)
    agree(op, x, w, *((bias,) if has_bias else ()), want=want)


def test_torch_agrees_on_norms_over_channels():
    x, mean, gamma, beta = (drawn(s, i) for i, s in enumerate([(2, 3, 4, 5), (3,), (3,), (3,)]))
    variance = drawn((3,), 9, 0.1, 2)
    t = {k: torch.from_numpy(v) for k, v in locals().items() if isinstance(v, np.ndarray)}
    eps = 2.0**-10
    want = F.batch_norm(t["x"], t["mean"], t["variance"], t["gamma"], t["beta"], eps=eps)
    agree(BatchNorm(eps), x, mean, variance, gamma, beta, want=want)
    want = F.instance_norm(t["x"], weight=t["gamma"], bias=t["beta"], eps=eps)
    agree(InstanceNorm(eps), x, gamma, beta, want=want)


@pytest.mark.parametrize(("size", "channels"), [*product((1, 2, 3, 5, 12), (1, 4, 7))])
def test_torch_agrees_on_the_norm_over_neighbours(size, channels):
    x = drawn((2, channels, 3), size)
    want = F.local_response_norm(torch.from_numpy(x), size, 0.5, 0.75, 2.0)
    agree(LocalResponseNorm(size, 0.5, 0.75, 2.0), x, want=want)


def test_torch_agrees_on_quantised_values():
    x, scale = drawn((200, 3), 1, -90, 90), np.float32([0.25, 0.5, 1])
    zero = np.int8([-3, 0, 5])
    steps = torch.round(torch.from_numpy(x) / torch.from_numpy(scale))
    want = torch.clamp(steps + torch.from_numpy(zero), -128, 127).to(torch.int8)
    agree(Quantize(DType.INT8, 1), x, scale, zero, want=want)
