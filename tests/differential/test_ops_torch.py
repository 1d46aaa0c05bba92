"""Every op that torch has means the same, and has the same gradient, on shapes of all kinds."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.samples import CORE_ROWS
from strategies import shapes, shapes_of, values

from orion_ane.ir import Node, Op
from orion_ane.ops import evaluate_op, input_
from orion_ane.ops.arithmetic import GreaterEqual, Maximum, Pow, RealDiv, Select
from orion_ane.ops.curve import Clip, Exp, Neg, Relu, Rsqrt, Sigmoid, Sqrt, Tanh
from orion_ane.ops.leaf import Leaf
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum, Softmax
from orion_ane.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from orion_ane.types import DType, TensorType

BOOL, FP16, FP32, INT32 = DType.BOOL, DType.FP16, DType.FP32, DType.INT32

EXAMPLES = int(os.environ.get("ORION_FUZZ", "15"))
"""For each row and element type; ORION_FUZZ=1000 hunts."""
FP32_SUMS = 2e-6
"""Two orders of summing, or two libraries' transcendental functions, in fp32."""
FP64_SUMS = 1e-13
FP16_TIE = 2.0**-10
"""Where fp32 results differ in the last place, their roundings to fp16 may lie one step apart."""
FP32_CONSTANTS = 1e-6
"""A gradient graph in fp32 holds its constants (1/n, p) in fp32."""


@dataclass(frozen=True)
class Case:
    """An op and its operands' shapes; values are drawn evenly between lo and hi."""

    op: Op
    shapes: tuple[tuple[int, ...], ...]
    lo: float = -2.0
    hi: float = 2.0

    def values(self, seed: int, dtype: DType):
        rng = np.random.default_rng(seed)
        first = BOOL if self.op.name == "select" else dtype
        dtypes = [first, *(dtype for _ in self.shapes[1:])]
        types = [TensorType(d, shape) for d, shape in zip(dtypes, self.shapes, strict=True)]
        return types, [values(of, rng, self.lo, self.hi) for of in types]


@st.composite
def stretched(draw, count: int) -> tuple[tuple[int, ...], ...]:
    """Shapes that broadcast: of one shape, leading axes dropped and others set to one."""
    whole = draw(shapes())
    found = []
    for _ in range(count):
        ones = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        shape = tuple(1 if one else n for n, one in zip(whole, ones, strict=True))
        found.append(shape[draw(st.integers(0, len(whole))) :])
    return tuple(found)


def binary(op: Op, lo: float = -2.0, count: int = 2):
    return stretched(count).map(lambda found: Case(op, found, lo))


def unary(op: Op, lo: float = -2.0, hi: float = 2.0):
    return shapes().map(lambda shape: Case(op, (shape,), lo, hi))


@st.composite
def reductions(draw, row: type[Op]) -> Case:
    shape = draw(shapes(min_rank=1))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    signed = tuple(a - len(shape) if draw(st.booleans()) else a for a in axes)
    return Case(row(signed), (shape,))


@st.composite
def softmaxes(draw) -> Case:
    shape = draw(shapes(min_rank=1))
    return Case(Softmax(draw(st.integers(-len(shape), len(shape) - 1))), (shape,), -8.0, 8.0)


@st.composite
def convolutions(draw) -> Case:
    x = draw(shapes(min_rank=4, max_rank=4))
    return Case(Conv1x1(), (x, (draw(st.integers(1, 5)), x[1], 1, 1)))


@st.composite
def products(draw) -> Case:
    m, k, n = (draw(st.integers(1, 5)) for _ in "mkn")
    tx, ty = draw(st.booleans()), draw(st.booleans())
    batches = draw(stretched(2).filter(lambda found: max(map(len, found)) <= 3))
    x, y = (k, m) if tx else (m, k), (n, k) if ty else (k, n)
    return Case(Matmul(tx, ty), ((*batches[0], *x), (*batches[1], *y)))


@st.composite
def reshapes(draw) -> Case:
    shape = draw(shapes(min_rank=1))
    new = draw(shapes_of(int(np.prod(shape)), draw(st.integers(1, 5))))
    return Case(Reshape(new), (shape,))


@st.composite
def transposes(draw) -> Case:
    shape = draw(shapes())
    perm = draw(st.permutations(range(len(shape))))
    return Case(Transpose(tuple(p - len(perm) * draw(st.integers(0, 1)) for p in perm)), (shape,))


@st.composite
def cuts(draw) -> Case:
    shape = draw(shapes())
    begin = tuple(draw(st.integers(0, n - 1)) for n in shape)
    end = tuple(draw(st.integers(b + 1, n)) for b, n in zip(begin, shape, strict=True))
    return Case(Slice(begin, end), (shape,))


@st.composite
def pads(draw) -> Case:
    shape = draw(shapes())
    before, after = (tuple(draw(st.integers(0, 2)) for _ in shape) for _ in "ba")
    return Case(Pad(before, after), (shape,))


@st.composite
def joins(draw) -> Case:
    shape = draw(shapes(min_rank=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        part = list(shape)
        part[axis] = draw(st.integers(1, 3))
        parts.append(tuple(part))
    return Case(Concat(axis), tuple(parts))


POWERS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
CASES = {
    "add": binary(Op.table["add"]()),
    "sub": binary(Op.table["sub"]()),
    "mul": binary(Op.table["mul"]()),
    "real_div": binary(RealDiv(), 0.25),
    "maximum": binary(Maximum()),
    "pow": POWERS.flatmap(lambda p: unary(Pow(p), 0.25 if p < 0 or p % 1 else -2.0)),
    "greater_equal": binary(GreaterEqual()),
    "select": binary(Select(), count=3),
    "relu": unary(Relu()),
    "tanh": unary(Tanh(), -6.0, 6.0),
    "sigmoid": unary(Sigmoid(), -12.0, 12.0),
    "exp": unary(Exp(), -8.0, 8.0),
    "sqrt": unary(Sqrt(), 0.125),
    "rsqrt": st.sampled_from([0.0, 0.5, 2.0**-10]).flatmap(lambda eps: unary(Rsqrt(eps), 0.125)),
    "neg": unary(Neg()),
    "clip": unary(Clip(-0.5, 1.25)),
    "conv1x1": convolutions(),
    "matmul": products(),
    "reduce_sum": reductions(ReduceSum),
    "reduce_mean": reductions(ReduceMean),
    "reduce_max": reductions(ReduceMax),
    "softmax": softmaxes(),
    "reshape": reshapes(),
    "transpose": transposes(),
    "cast": st.sampled_from([FP16, FP32, INT32, BOOL]).flatmap(lambda to: unary(Cast(to))),
    "identity": unary(Identity()),
    "slice": cuts(),
    "pad": pads(),
    "concat": joins(),
}
INTEGERS = ["add", "sub", "mul", "maximum", "greater_equal", "select", "matmul", "reduce_sum"]
INTEGERS += ["reduce_max", "reshape", "transpose", "cast", "identity", "slice", "concat"]
ROUNDED = {"pow", "sqrt", "tanh", "sigmoid", "exp", "rsqrt", "conv1x1", "matmul", "softmax"}
ROUNDED |= {"reduce_sum", "reduce_mean"}
"""Rows in which two libraries may differ in the last places; the others agree bit for bit."""


def ask(op: Op, *x):
    """The op as torch spells it."""
    torch = oracles.torch()
    F = torch.nn.functional
    match op:
        case Select():
            return torch.where(*x)
        case Pow(p):
            return x[0] ** p
        case Rsqrt(eps):
            return torch.rsqrt(x[0] + eps)
        case Clip(lo, hi):
            return torch.clamp(x[0], lo, hi)
        case Conv1x1():
            return F.conv2d(*x)
        case Matmul(tx, ty):
            return (x[0].mT if tx else x[0]) @ (x[1].mT if ty else x[1])
        case ReduceSum(axes):
            return torch.sum(x[0], axes, keepdim=True, dtype=x[0].dtype)
        case ReduceMean(axes):
            return torch.mean(x[0], axes, keepdim=True)
        case ReduceMax(axes):
            return torch.amax(x[0], axes, keepdim=True)
        case Softmax(axis):
            return torch.softmax(x[0], axis)
        case Reshape(shape):
            return x[0].reshape(shape)
        case Transpose(perm):
            return x[0].permute(perm)
        case Cast(to):
            return x[0].to(torch.from_numpy(np.zeros((), to.numpy)).dtype)
        case Identity():
            return x[0].clone()
        case Slice(begin, end):
            return x[0][tuple(slice(b, e) for b, e in zip(begin, end, strict=True))]
        case Pad(before, after):
            pairs = zip(reversed(before), reversed(after), strict=True)
            return F.pad(x[0], [n for pair in pairs for n in pair]) if before else x[0]
        case Concat(axis):
            return torch.cat(x, axis)
    names = {"real_div": "div", "greater_equal": "ge"}
    return getattr(torch, names.get(op.name, op.name))(*x)


def test_torch_is_asked_about_every_row():
    assert set(CASES) == {name for name in CORE_ROWS if not issubclass(Op.table[name], Leaf)}


def agree(ours, theirs, tolerance: float, *, bits: bool) -> None:
    theirs = theirs.numpy()
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if bits:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", sorted(CASES))
@settings(max_examples=EXAMPLES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_an_op_agrees_with_torch(name, data, seed):
    torch = oracles.torch()
    case = data.draw(CASES[name])
    op, bits = case.op, name not in ROUNDED
    for dtype, tolerance in ((FP32, FP32_SUMS), (FP16, FP16_TIE)):
        types, x = case.values(seed, dtype)
        ours = evaluate_op(op, tuple(x), op.infer(tuple(types)))
        fed = [torch.from_numpy(v.astype(np.float32) if v.dtype == np.float16 else v) for v in x]
        theirs = ask(op, *fed)
        if theirs.dtype == torch.float32 and ours.dtype == np.float16:
            theirs = theirs.half()  # computed in fp32, rounded once
        agree(ours, theirs, tolerance, bits=bits)
    _, x = case.values(seed, FP32)
    fed = [v.astype(np.float64) if v.dtype == np.float32 else v for v in x]
    agree(
        np.asarray(op.eval(tuple(fed))), ask(op, *map(torch.from_numpy, fed)), FP64_SUMS, bits=bits
    )


@pytest.mark.parametrize("name", INTEGERS)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_an_op_on_integers_agrees_with_torch(name, data, seed):
    torch = oracles.torch()
    case = data.draw(CASES[name])
    types, x = case.values(seed, INT32)
    ours = evaluate_op(case.op, tuple(x), case.op.infer(tuple(types)))
    agree(ours, ask(case.op, *map(torch.from_numpy, x)), 0.0, bits=True)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"greater_equal", "reduce_max"}))
@settings(max_examples=EXAMPLES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_a_gradient_agrees_with_autograd(name, data, seed):
    torch = oracles.torch()
    case = data.draw(CASES[name])
    types, x = case.values(seed, FP32)
    nodes = tuple(input_(f"x{i}", of) for i, of in enumerate(types))
    y = Node(case.op, nodes)
    if not y.type.dtype.is_float:
        return  # a cast to integers
    dy = input_("dy", y.type)
    weight = np.random.default_rng(seed + 1).standard_normal(y.type.shape)
    ours = [(i, g) for i, g in enumerate(case.op.grad(y, dy)) if g is not None]
    wide = [oracles.wide(v) for v in x]
    grads = oracles.evaluate64(
        [g for _, g in ours], {**dict(zip(nodes, wide, strict=True)), dy: weight}
    )
    leaves = [torch.from_numpy(v).requires_grad_(v.dtype.kind == "f") for v in wide]
    # A cast rounds, which has no gradient.
    op = Identity() if isinstance(case.op, Cast) else case.op
    ask(op, *leaves).backward(torch.from_numpy(np.asarray(weight)))
    for (i, _), found in zip(ours, grads, strict=True):
        theirs = leaves[i].grad.numpy()
        assert found.shape == theirs.shape
        np.testing.assert_allclose(found, theirs, rtol=FP32_CONSTANTS, atol=FP32_CONSTANTS)
