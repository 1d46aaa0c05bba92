"""fp16 numerics against onnxruntime, whose fp16 kernels compute in fp32 and round once.

Its models are written here as protobuf bytes: the few fields that one node needs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import oracles
import pytest

from orion_ane.engine import lower
from orion_ane.ir import Graph
from orion_ane.ops import (
    Weight,
    cast,
    clip,
    concat,
    conv1x1,
    exp,
    greater_equal,
    identity,
    input_,
    matmul,
    maximum,
    power,
    reduce_max,
    reduce_mean,
    reduce_sum,
    relu,
    select,
    sigmoid,
    slice_by_index,
    softmax,
    sqrt,
    tanh,
    transpose,
    weight,
)
from orion_ane.types import DType, TensorType

FP16 = DType.FP16
OPSET, IR_VERSION = 18, 8
ELEMENT = {np.dtype("f4"): 1, np.dtype("i4"): 6, np.dtype("i8"): 7, np.dtype("?"): 9}
ELEMENT[np.dtype("f2")] = 10

OTHER_LAST_BIT = 2.0**-10
"""Share of results that a curve whose fp32 value differs in its last bits rounds to the other
neighbour: only values that close to a tie can."""
SUM_ORDER = 2.0**-8
"""The same, for sums of some hundred products in another order."""


# ONNX, by hand


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def number(field: int, n: int) -> bytes:
    return varint(field << 3) + varint(n)


def data(field: int, payload: bytes | str) -> bytes:
    raw = payload.encode() if isinstance(payload, str) else payload
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def port(name: str, of: np.ndarray) -> bytes:
    sizes = b"".join(data(1, number(1, n)) for n in of.shape)
    tensor = number(1, ELEMENT[of.dtype]) + data(2, sizes)
    return data(1, name) + data(2, data(1, tensor))


def attribute(name: str, value: int | Iterable[int]) -> bytes:
    if isinstance(value, int):
        return data(1, name) + number(3, value) + number(20, 2)
    return data(1, name) + b"".join(number(8, n) for n in value) + number(20, 7)


def onnxruntime(op: str, inputs: list[np.ndarray], want: np.ndarray, **attributes) -> np.ndarray:
    """One ONNX op, run."""
    ort = oracles.oracle("onnxruntime")
    names = [f"x{i}" for i in range(len(inputs))]
    node = b"".join(data(1, name) for name in names) + data(2, "y") + data(4, op)
    node += b"".join(data(5, attribute(key, value)) for key, value in attributes.items())
    graph = data(1, node) + data(2, "g")
    graph += b"".join(data(11, port(name, x)) for name, x in zip(names, inputs, strict=True))
    graph += data(12, port("y", want))
    opset = data(1, "") + number(2, OPSET)
    model = number(1, IR_VERSION) + data(7, graph) + data(8, opset)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


def engine(build, inputs: list[np.ndarray], weights=()) -> np.ndarray:
    nodes = [input_(f"x{i}", TensorType.of(x)) for i, x in enumerate(inputs)]
    leaves = [weight(f"w{i}", TensorType.of(w)) for i, w in enumerate(weights)]
    graph = Graph({x.op.label: x for x in nodes}, {"y": build(*nodes, *leaves)})
    arrays = {leaf.op: w for leaf, w in zip(leaves, weights, strict=True)}
    feed = {x.op.label: value for x, value in zip(nodes, inputs, strict=True)}
    assert all(isinstance(leaf, Weight) for leaf in arrays)
    return lower(graph, arrays, numerics="fp16").run(feed)["y"]


def assert_bits(got: np.ndarray, want: np.ndarray, *, but_for: float = 0.0) -> None:
    """The same bits; or, for that share of the elements, neighbouring fp16 values."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    differ = (got != want) & ~(np.isnan(got.astype("f4")) & np.isnan(want.astype("f4")))
    assert differ.sum() <= but_for * got.size
    if differ.any():
        steps = got[differ].view(np.int16).astype(int) - want[differ].view(np.int16)
        assert np.all(abs(steps) == 1)


EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
MODERATE = EVERY[np.isfinite(EVERY) & (abs(EVERY.astype("f4")) < 12)]


@pytest.mark.parametrize(
    ("op", "build", "x", "share"),
    [
        ("Relu", relu, EVERY, 0),
        ("Neg", lambda x: -x, EVERY, 0),
        ("Sqrt", sqrt, EVERY, 0),
        ("Identity", identity, EVERY, 0),
        ("Exp", exp, MODERATE, OTHER_LAST_BIT),
        ("Tanh", tanh, MODERATE, OTHER_LAST_BIT),
        # below that its rational approximation is right to fewer bits than fp16 has
        ("Sigmoid", sigmoid, MODERATE[MODERATE > -8], OTHER_LAST_BIT),
    ],
)
def test_a_curve_of_every_fp16_value_has_its_bits(op, build, x, share):
    got = engine(build, [x])
    assert_bits(got, onnxruntime(op, [x], got), but_for=share)


@pytest.mark.parametrize(
    ("op", "build"),
    [
        ("Add", lambda x, y: x + y),
        ("Sub", lambda x, y: x - y),
        ("Mul", lambda x, y: x * y),
        ("Div", lambda x, y: x / y),
        ("Max", maximum),
        ("GreaterOrEqual", greater_equal),
    ],
)
def test_a_pair_has_its_bits(op, build, rng):
    x, y = (rng.permutation(EVERY[np.isfinite(EVERY)]).reshape(4, -1) for _ in range(2))
    for pair in ([x, y], [x, y[:1]], [x[:, :1], y]):
        got = engine(build, pair)
        assert_bits(got, onnxruntime(op, pair, got))


def test_a_choice_has_its_bits(rng):
    choose = rng.random((3, 40)) < 0.5
    x, y = rng.standard_normal((2, 3, 40)).astype(np.float16)
    got = engine(select, [choose, x, y])
    assert_bits(got, onnxruntime("Where", [choose, x, y], got))


@pytest.mark.parametrize("p", [2.0, -1.0, 0.5])
def test_a_power_has_its_bits(p, rng):
    x = rng.uniform(0.1, 8, 5000).astype(np.float16)
    got = engine(lambda x: power(x, p), [x])
    want = onnxruntime("Pow", [x, np.full((), p, np.float16)], got)
    assert_bits(got, want, but_for=OTHER_LAST_BIT)


def test_a_clip_has_its_bits():
    x, lo, hi = EVERY[~np.isnan(EVERY)], np.float16(-2), np.float16(7.5)
    got = engine(lambda x: clip(x, -2, 7.5), [x])
    assert_bits(got, onnxruntime("Clip", [x, np.asarray(lo), np.asarray(hi)], got))


@pytest.mark.parametrize(
    ("op", "build", "share"),
    [
        ("ReduceSum", reduce_sum, SUM_ORDER),
        ("ReduceMean", reduce_mean, SUM_ORDER),
        ("ReduceMax", reduce_max, 0),
    ],
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2)], ids=str)
def test_a_reduction_has_its_bits(op, build, axes, share, rng):
    x = rng.standard_normal((9, 70, 11)).astype(np.float16)
    got = engine(lambda x: build(x, axes), [x])
    want = onnxruntime(op, [x, np.array(axes, np.int64)], got)
    assert_bits(got, want, but_for=share)


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_softmax_has_its_bits(axis, rng):
    x = (4 * rng.standard_normal((6, 30, 50))).astype(np.float16)
    got = engine(lambda x: softmax(x, axis), [x])
    assert_bits(got, onnxruntime("Softmax", [x], got, axis=axis), but_for=SUM_ORDER)


@pytest.mark.parametrize("columns", [1, 6, 40])
def test_a_convolution_has_its_bits(columns, rng):
    x = rng.standard_normal((1, 200, 1, columns)).astype(np.float16)
    w = rng.standard_normal((400, 200, 1, 1)).astype(np.float16)
    got = engine(conv1x1, [x], [w])
    assert_bits(got, onnxruntime("Conv", [x, w], got), but_for=SUM_ORDER)


@pytest.mark.parametrize("shapes", [((2, 3, 1, 64), (1, 3, 64, 90)), ((70, 64), (64, 50))])
def test_a_matmul_has_its_bits(shapes, rng):
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    got = engine(matmul, [x, y])
    assert_bits(got, onnxruntime("MatMul", [x, y], got), but_for=SUM_ORDER)


def test_moves_have_their_bits(rng):
    x = rng.standard_normal((4, 6, 5)).astype(np.float16)
    got = engine(lambda x: transpose(x, (2, 0, 1)), [x])
    assert_bits(got, onnxruntime("Transpose", [x], got, perm=(2, 0, 1)))
    got = engine(lambda x: concat(x, x, axis=1), [x])
    assert_bits(got, onnxruntime("Concat", [x, x], got, axis=1))
    got = engine(lambda x: slice_by_index(x, (1, 0, 2), (3, 6, 4)), [x])
    begin, end = np.array([1, 0, 2]), np.array([3, 6, 4])
    assert_bits(got, onnxruntime("Slice", [x, begin, end], got))


def test_casts_have_their_bits(rng):
    x = rng.uniform(-300, 300, 4000).astype(np.float32)
    got = engine(lambda x: cast(x, FP16), [x])
    assert_bits(got, onnxruntime("Cast", [x], got, to=ELEMENT[got.dtype]))
    for to in (DType.FP32, DType.INT32, DType.BOOL):
        half = x.astype(np.float16)
        got = engine(lambda x, to=to: cast(x, to), [half])
        assert_bits(got, onnxruntime("Cast", [half], got, to=ELEMENT[got.dtype]))
