"""Gates, norms, linear layers, convolutions and attention mean what torch means by them."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import values

from orion_ane.ir import MilArgs, Node, Op
from orion_ane.ops import Const, const, evaluate_op, input_
from orion_ane.ops.foreign.gates import EXACT, GELU_MODES, TANH, Gelu, Silu
from orion_ane.types import DType, TensorType

FP16, FP32, BOOL = DType.FP16, DType.FP32, DType.BOOL
FP32_SUMS = 2e-6
"""Two orders of summing, or two libraries' transcendental functions, in fp32."""
FP16_TIE = 2.0**-10
"""Where fp32 results differ in the last place, their roundings to fp16 may lie one step apart."""
EXAMPLES = 40


def torch_of(array: np.ndarray):
    return oracles.oracle("torch").from_numpy(np.array(array))


def agree(ours: np.ndarray, theirs, of: DType = FP32) -> None:
    tolerance = FP16_TIE if of is FP16 else FP32_SUMS
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=tolerance, atol=tolerance)


def drawn(shape: tuple[int, ...], seed: int, dtype: DType = FP32) -> np.ndarray:
    return values(TensorType(dtype, shape), np.random.default_rng(seed), -2.0, 2.0)


def read(op: str, operands: dict[str, np.ndarray], literals=None) -> tuple[Node, list[np.ndarray]]:
    """The node that a statement reads as, and the values of its operands."""
    fed = {name: input_(name, TensorType.of(value)) for name, value in operands.items()}
    args = MilArgs(op, nodes=fed, literals=literals or {}, tuples={}, opset=18)
    node = Op.readers[op](args)
    assert args.leftover == ()
    back = {leaf: operands[name] for name, leaf in fed.items()}
    return node, [x.op.value if isinstance(x.op, Const) else back[x] for x in node.args]


def value(op: str, operands: dict[str, np.ndarray], literals=None) -> np.ndarray:
    node, fed = read(op, operands, literals)
    return evaluate_op(node.op, tuple(fed), node.type)


@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize("mode", [*GELU_MODES, "silu"])
def test_a_gate_agrees_with_torch(mode, dtype):
    F = oracles.oracle("torch").nn.functional
    x = np.linspace(-12, 12, 4097).astype(dtype.numpy)
    wide = torch_of(x.astype(np.float32))
    theirs = {
        EXACT: lambda: F.gelu(wide),
        TANH: lambda: F.gelu(wide, approximate="tanh"),
        "silu": lambda: F.silu(wide),
    }.get(mode, lambda: wide * oracles.oracle("torch").sigmoid(1.702 * wide))()
    op = Silu() if mode == "silu" else Gelu(mode)
    agree(evaluate_op(op, (x,), TensorType.of(x)), theirs, dtype)


def test_the_two_gelus_are_told_apart():
    """Case N11."""
    x = np.array([1.0, 2.0, -0.5, 2.70], np.float32)
    exact, tanh = (evaluate_op(Gelu(mode), (x,), TensorType.of(x)) for mode in (EXACT, TANH))
    np.testing.assert_allclose(tanh[:3], [0.8411920, 1.9545977, -0.1542860], atol=1e-7)
    assert exact[0] == pytest.approx(0.8413447, abs=1e-7)
    assert abs(exact[3] - tanh[3]) == pytest.approx(4.73e-4, abs=2e-6)


@given(st.data(), st.integers(0, 2**32 - 1))
def test_a_layer_norm_over_the_last_axes_agrees_with_torch(data, seed):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    count = data.draw(st.integers(1, len(shape)))
    size = shape[-count:]
    has_gamma, has_beta = data.draw(st.booleans()), data.draw(st.booleans())
    operands = {"x": drawn(shape, seed)}
    operands |= {"gamma": drawn(size, seed + 1)} if has_gamma else {}
    operands |= {"beta": drawn(size, seed + 2)} if has_beta else {}
    axes = tuple(data.draw(st.permutations(range(-count, 0))))
    eps = data.draw(st.sampled_from([2.0**-10, 0.5]))
    ours = value("layer_norm", operands, {"axes": axes, "epsilon": eps})
    vectors = [torch_of(operands[k]) if k in operands else None for k in ("gamma", "beta")]
    layer_norm = oracles.oracle("torch").nn.functional.layer_norm
    agree(ours, layer_norm(torch_of(operands["x"]), size, *vectors, eps=eps))


def test_a_layer_norm_has_epsilon_1e_5_and_takes_all_axes_unless_told():
    node, _ = read("layer_norm", {"x": drawn((2, 3), 0)})
    assert (node.op.axes, node.op.eps) == ((0, 1), float(np.float32(1e-5)))


def test_constants_of_another_float_type_are_cast_to_that_of_x():
    x = input_("x", TensorType(FP16, (2, 3)))
    wide = {"gamma": const([1.0, 2.0, 3.0], FP32), "beta": const([0.0, 1.0, 2.0], FP32)}
    literals = {"axes": (1,)}
    args = MilArgs("layer_norm", nodes={"x": x, **wide}, literals=literals, tuples={}, opset=17)
    assert {arg.type.dtype for arg in Op.readers["layer_norm"](args).args} == {FP16}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.booleans(), st.integers(0, 9999))
def test_a_linear_layer_agrees_with_torch(shape, has_bias, seed):
    operands = {"x": drawn(tuple(shape), seed), "weight": drawn((3, shape[-1]), seed + 1)}
    operands |= {"bias": drawn((3,), seed + 2)} if has_bias else {}
    linear = oracles.oracle("torch").nn.functional.linear
    agree(value("linear", operands), linear(*map(torch_of, operands.values())))


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@settings(max_examples=EXAMPLES * 2)
@given(st.data(), st.integers(1, 3), st.integers(0, 9999))
def test_a_convolution_agrees_with_torch(data, axes, seed):
    def numbers(lo: int, hi: int, count: int = axes) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(lo, hi), min_size=count, max_size=count)))

    groups, inner, outer = (data.draw(st.integers(1, 2)) for _ in range(3))
    kernel, dilations, strides, pad = numbers(1, 3), numbers(1, 2), numbers(1, 3), numbers(0, 2)
    size = tuple(
        (k - 1) * d + 1 + n for k, d, n in zip(kernel, dilations, numbers(0, 3), strict=True)
    )
    operands = {
        "x": drawn((2, groups * inner, *size), seed),
        "weight": drawn((groups * outer, inner, *kernel), seed + 1),
    }
    operands |= {"bias": drawn((groups * outer,), seed + 2)} if data.draw(st.booleans()) else {}
    both = tuple(n for n in pad for _ in range(2))
    walk = {"strides": strides, "dilations": dilations, "groups": groups}
    ours = value("conv", operands, {**walk, "pad_type": "custom", "pad": both})
    conv = getattr(oracles.oracle("torch").nn.functional, f"conv{axes}d")
    given_all = (*map(torch_of, operands.values()), None)[:3]
    agree(ours, conv(*given_all, strides, pad, dilations, groups))
    if strides == (1,) * axes:
        ours = value("conv", operands, {**walk, "pad_type": "same"})
        agree(ours, conv(*given_all, strides, "same", dilations, groups))


@given(st.data(), st.integers(0, 9999))
def test_attention_agrees_with_torch_where_a_row_sees_something(data, seed):
    lead = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    length, seen, e, ev = (data.draw(st.integers(1, 4)) for _ in range(4))
    operands = {
        "query": drawn((*lead, length, e), seed),
        "key": drawn((*lead, seen, e), seed + 1),
        "value": drawn((*lead, seen, ev), seed + 2),
    }
    kind = data.draw(st.sampled_from([None, BOOL, FP32]))
    if kind is not None:
        whole = (*lead, length, seen)
        shape = whole[data.draw(st.integers(0, len(whole) - 2)) :]  # torch wants two axes
        mask = drawn(shape, seed + 3, kind)
        if kind is BOOL:
            mask[..., 0] = True
        operands["attn_mask"] = mask
    attention = oracles.oracle("torch").nn.functional.scaled_dot_product_attention
    ours = value("scaled_dot_product_attention", operands)
    agree(ours, attention(*map(torch_of, operands.values())))


def test_a_row_that_sees_nothing_is_zeros_and_its_neighbour_is_not_touched():
    """Case N03."""
    operands = {"query": drawn((1, 2, 3), 0), "key": drawn((1, 4, 3), 1)}
    operands |= {"value": drawn((1, 4, 2), 2)}
    mask = np.array([[False] * 4, [True, False, False, False]])
    for given_mask in (mask, np.where(mask, 0, -np.inf).astype(np.float32)):
        y = value("scaled_dot_product_attention", {**operands, "attn_mask": given_mask})
        np.testing.assert_array_equal(y[0], [[0, 0], operands["value"][0, 0]])
