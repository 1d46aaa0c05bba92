"""What parsed statements mean, beyond the spelling that we write ourselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ops.samples import typed
from strategies import shapes

from orion_ane.errors import MilError, OrionError, ShapeError
from orion_ane.ir import Graph, MilArgs, Node, Op
from orion_ane.ops import const, evaluate, input_, weight
from orion_ane.ops.arithmetic import Pow, RealDiv
from orion_ane.ops.curve import Neg, Rsqrt
from orion_ane.ops.foreign.binary import PowBy, WholeDiv
from orion_ane.ops.foreign.conv import BY_POINTS, Conv
from orion_ane.ops.linear import Conv1x1
from orion_ane.types import DType, TensorType

FP16, FP32, INT32 = DType.FP16, DType.FP32, DType.INT32
X = input_("x", typed("fp32[2,3,4]"))


def read(op: str, *, opset: int = 18, results: int = 1, **arguments):
    """What a statement reads as; every parameter must be taken."""
    nodes = {k: v for k, v in arguments.items() if isinstance(v, Node)}
    tuples = {k: v for k, v in arguments.items() if isinstance(v, tuple) and is_nodes(v)}
    rest = {k: v for k, v in arguments.items() if k not in nodes and k not in tuples}
    args = MilArgs(op, nodes=nodes, literals=rest, tuples=tuples, opset=opset, results=results)
    found = Op.readers[op](args)
    assert args.leftover == ()
    return found


def is_nodes(value: tuple) -> bool:
    return bool(value) and isinstance(value[0], Node)


def value_of(node: Node, fed: Mapping[Node, np.ndarray]):
    graph = Graph({leaf.op.label: leaf for leaf in fed}, {"y": node})
    return evaluate(graph, {leaf.op.label: value for leaf, value in fed.items()})["y"]


def counted(node: Node) -> np.ndarray:
    return np.arange(node.type.elements, dtype=node.type.dtype.numpy).reshape(node.type.shape)


# slice_by_index


@st.composite
def numpy_slices(draw):
    """A shape, arguments of slice_by_index, and the index that means the same in numpy."""
    shape = draw(shapes(min_rank=1, max_size=5))
    args = {key: [] for key in ("begin", "end", "begin_mask", "end_mask", "squeeze_mask")}
    index = []
    for n in shape:
        begin, end = draw(st.integers(-n - 2, n + 1)), draw(st.integers(-n - 2, n + 2))
        masks = [draw(st.booleans()) for _ in range(3)]
        if masks[2]:
            assume(masks[0] or -n <= begin < n)
            index.append(0 if masks[0] else begin)
        else:
            index.append(slice(None if masks[0] else begin, None if masks[1] else end))
        for key, value in zip(args, (begin, end, *masks), strict=True):
            args[key].append(value)
    return shape, {key: tuple(value) for key, value in args.items()}, tuple(index)


@given(numpy_slices())
def test_slice_by_index_means_what_numpy_means(drawn):
    shape, args, index = drawn
    x = input_("x", TensorType(FP32, shape))
    whole = counted(x)
    expected = np.asarray(whole[index])
    if not expected.size:
        with pytest.raises(ShapeError, match="slice: bounds do not fit"):
            read("slice_by_index", x=x, **args)
        return
    y = read("slice_by_index", x=x, **args)
    np.testing.assert_array_equal(value_of(y, {x: whole}), expected)


def test_slice_by_index_without_masks_has_none():
    y = read("slice_by_index", x=X, begin=(0, -2, 1), end=(2, 3, -1), stride=(1, 1, 1))
    np.testing.assert_array_equal(value_of(y, {X: counted(X)}), counted(X)[0:2, -2:3, 1:-1])


def test_a_squeezed_axis_may_have_any_end_and_stride():
    args = {"begin": (1, 0, 0), "end": (0, 3, 4), "stride": (7, 1, 1)}
    y = read("slice_by_index", x=X, **args, squeeze_mask=(True, False, False))
    np.testing.assert_array_equal(value_of(y, {X: counted(X)}), counted(X)[1])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"stride": (1, 0, 1)}, "slice_by_index: a stride is 0: got (1, 0, 1)"),
        ({"stride": (2, 1)}, "slice_by_index: stride does not fit: got (2, 1), want axes of"),
        ({"begin": (0, 0)}, "slice_by_index: begin does not fit: got (0, 0), want axes of"),
        ({"end_mask": (True,)}, "slice_by_index: end_mask does not fit"),
        ({"begin_mask": (1, 0, 0)}, "slice_by_index: begin_mask has the wrong type"),
        ({"begin": 1.5}, "slice_by_index: begin has the wrong type: got 1.5, want int32 values"),
        ({"begin": (5, 0, 0)}, "slice: bounds do not fit"),
    ],
)
def test_slice_by_index_refuses_what_it_cannot_mean(args, says):
    with pytest.raises(OrionError) as caught:
        read("slice_by_index", x=X, **{"begin": (0, 0, 0), "end": (2, 3, 4), **args})
    assert str(caught.value).startswith(says)


# split


@given(st.data(), shapes(min_rank=1))
def test_split_means_what_numpy_means(data, shape):
    x = input_("x", TensorType(FP32, shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    count = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    even = read("split", x=x, axis=axis, num_splits=count, results=count)
    cuts = sorted(data.draw(st.sets(st.integers(1, size - 1)))) if size > 1 else []
    sizes = tuple(int(n) for n in np.diff([0, *cuts, size]))
    named = {"num_splits": len(sizes)} if data.draw(st.booleans()) else {}
    uneven = read("split", x=x, axis=axis, split_sizes=sizes, results=len(sizes), **named)
    for parts, where in ((even, count), (uneven, cuts)):
        expected = np.split(counted(x), where, axis)
        assert len(parts) == len(expected)
        for part, want in zip(parts, expected, strict=True):
            assert part.args == (x,)
            np.testing.assert_array_equal(value_of(part, {x: counted(x)}), want)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"axis": 3, "num_splits": 1}, "split: no such axis: got 3 for x fp32[2,3,4]"),
        ({"axis": -4, "num_splits": 1}, "split: no such axis: got -4"),
        ({"axis": 1, "num_splits": 2}, "split: does not divide: got 3 by 2"),
        ({"axis": 1, "num_splits": 0}, "split: does not divide: got 3 by 0"),
        ({"axis": 1, "num_splits": -3}, "split: does not divide: got 3 by -3"),
        ({"axis": 2, "split_sizes": (1, 2)}, "split: sizes do not add up: got (1, 2)"),
        ({"axis": 2, "split_sizes": (5, -1)}, "split: sizes do not add up"),
        ({"axis": 2, "split_sizes": (4, 0)}, "split: sizes do not add up"),
        ({"axis": 2, "split_sizes": (2, 2), "num_splits": 3}, "split: num_splits and split_sizes"),
        ({"axis": 2}, "split: missing argument: want num_splits"),
    ],
)
def test_split_refuses_what_does_not_divide(args, says):
    count = len(args.get("split_sizes", ())) or args.get("num_splits", 1)
    with pytest.raises(MilError) as caught:
        read("split", x=X, results=count, **args)
    assert str(caught.value).startswith(says)


# reshape


@pytest.mark.parametrize(
    ("opset", "shape", "written", "found"),
    [
        (15, (2, 3, 4), (0, -1, 2), (2, 6, 2)),
        (16, (2, 3, 4), (0, 0, 0), (2, 3, 4)),
        (16, (2, 3, 4), (-1, 0, 2), (4, 3, 2)),
        (17, (2, 50), (1, 0, -1, 0), (1, 1, 2, 50)),
        (18, (2, 3, 4), (0, -1), (3, 8)),
        (18, (2, 3, 4), (-1, 0), (6, 4)),
        (18, (2, 3, 4), (0, 0, 0, 0), (1, 2, 3, 4)),
        (18, (2, 3, 4), (24,), (24,)),
        (15, (2, 3, 4), (-1,), (24,)),
        (18, (1, 1), (), ()),
        (18, (), (0, -1), (1, 1)),
    ],
)
def test_a_zero_copies_an_axis_by_position_and_since_ios17_from_the_right(
    opset, shape, written, found
):
    x = input_("x", TensorType(FP32, shape))
    assert read("reshape", x=x, shape=written, opset=opset).type.shape == found


@pytest.mark.parametrize(
    ("opset", "written", "says"),
    [
        (16, (0, -1), "reshape: 0 copies no axis: got (0, -1), want rank of fp32[2,3,4]"),
        (18, (-1, -1), "reshape: not a shape: got (-1, -1), want sizes, 0 or one -1"),
        (18, (-2, 12), "reshape: not a shape"),
        (18, (5, -1), "reshape: counts differ"),
        (18, (7, 7, -1), "reshape: counts differ"),
        (18, (25,), "reshape: counts differ: got x fp32[2,3,4] to [25]"),
        (18, (1,) * 6, "reshape: rank too high: got 6, want at most 5"),
        (18, (2**31 - 1,) * 500_000, "reshape: rank too high: got 500000, want at most 5"),
        (18, "24", "reshape: shape has the wrong type"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_reshape_refuses_what_does_not_hold_the_elements(opset, written, says):
    with pytest.raises(OrionError) as caught:
        read("reshape", x=X, shape=written, opset=opset)
    assert str(caught.value).startswith(says)


# reductions


@pytest.mark.parametrize(
    ("name", "meaning"), [("reduce_sum", np.sum), ("reduce_mean", np.mean), ("reduce_max", np.max)]
)
@pytest.mark.parametrize("axes", [None, (0,), (-1,), (0, 2), (-2, 2), 1])
@pytest.mark.parametrize("keep_dims", [True, False, None])
def test_a_reduction_without_axes_takes_all_and_drops_them_unless_told(
    name, meaning, axes, keep_dims
):
    given_axes = {} if axes is None else {"axes": axes}
    given_keep = {} if keep_dims is None else {"keep_dims": keep_dims}
    y = read(name, x=X, **given_axes, **given_keep)
    expected = np.asarray(meaning(counted(X), axes, keepdims=bool(keep_dims)))
    assert y.type.shape == expected.shape
    np.testing.assert_array_equal(value_of(y, {X: counted(X)}), expected)


@pytest.mark.parametrize("args", [{}, {"axes": (0,)}, {"axes": (), "keep_dims": True}])
def test_a_scalar_has_nothing_to_reduce(args):
    with pytest.raises(OrionError, match="nothing to reduce"):
        read("reduce_sum", x=input_("x", typed("fp16[]")), **args)


# pad


@given(st.data(), shapes(min_rank=1))
def test_fewer_pairs_pad_the_last_axes(data, shape):
    x = input_("x", TensorType(FP32, shape))
    count = data.draw(st.integers(0, len(shape)))
    pairs = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(count)]
    y = read("pad", x=x, pad=tuple(n for pair in pairs for n in pair))
    expected = np.pad(counted(x), [(0, 0)] * (len(shape) - count) + pairs)
    np.testing.assert_array_equal(value_of(y, {x: counted(x)}), expected)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"pad": (1, 1, 1)}, "pad: amounts do not fit: got (1, 1, 1), want pairs for fp32[2,3,4]"),
        ({"pad": (0,) * 8}, "pad: amounts do not fit"),
        ({"pad": (0, -1)}, "pad: amounts do not fit"),
        ({"pad": (0, 4), "mode": "reflect"}, "border: amounts do not fit"),
        ({"pad": (0, 1), "mode": "wrap"}, "border: no such mode: got wrap"),
        ({"pad": (0, 1, 1), "constant_val": 2.0}, "pad: amounts do not fit"),
        ({"pad": (0, 2**31 - 1) * 3}, "pad: too many elements"),
    ],
)
def test_pad_refuses_what_is_no_frame(args, says):
    with pytest.raises(OrionError) as caught:
        read("pad", x=X, **args)
    assert str(caught.value).startswith(says)


# conv


W = weight("w", typed("fp32[5,3,1,1]"))
IMAGE = input_("x", typed("fp32[1,3,1,4]"))


def by_points(**changed) -> Conv:
    return replace(BY_POINTS, **changed)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"pad_type": "same"},
        {"pad_type": "custom", "pad": (0, 0, 0, 0)},
        {"pad_type": "valid", "pad": (1, 1, 1, 1)},  # is read only where it is custom
        {"strides": (1, 1), "dilations": (1, 1), "groups": 1},
    ],
)
def test_a_convolution_by_points_reads_however_it_is_padded(args):
    node = read("conv", x=IMAGE, weight=W, **args)
    assert (node.op, node.args) == (Conv1x1(), (IMAGE, W))


@pytest.mark.parametrize(
    ("args", "op"),
    [
        ({"bias": weight("b", typed("fp32[5]"))}, by_points(has_bias=True)),
        ({"strides": (1, 2)}, by_points(strides=(1, 2))),
        ({"strides": (1, 3), "pad_type": "same"}, by_points(strides=(1, 3))),
        ({"dilations": (2, 1)}, by_points(dilations=(2, 1))),
        ({"pad_type": "custom", "pad": (0, 1, 0, 0)}, by_points(pad=(0, 1, 0, 0))),
        (
            {"weight": weight("w", typed("fp32[5,3,2,4]")), "pad_type": "same"},
            by_points(pad=(0, 1, 1, 2)),
        ),
        (
            {"weight": weight("w", typed("fp32[5,3,2,4]")), "pad_type": "same_lower"},
            by_points(pad=(1, 0, 2, 1)),
        ),
        ({"weight": weight("w", typed("fp32[6,1,1,1]")), "groups": 3}, by_points(groups=3)),
    ],
)
def test_another_convolution_reads_with_its_padding_in_numbers(args, op):
    assert read("conv", x=IMAGE, **{"weight": W, **args}).op == op


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"bias": W}, "conv: bias does not fit"),
        ({"pad_type": "other"}, "conv: no such pad_type: got other"),
        ({"groups": 2}, "conv: channels do not fit"),
        ({"strides": (1,), "pad_type": "same"}, "conv: strides do not fit"),
        ({"strides": (0, 1), "pad_type": "same"}, "conv: strides do not fit"),
        ({"weight": weight("w", typed("fp32[5,3,3,3]"))}, "conv: the kernel is larger than x"),
    ],
)
def test_a_convolution_that_does_not_fit_is_refused(args, says):
    with pytest.raises(OrionError) as caught:
        read("conv", x=IMAGE, **{"weight": W, **args})
    assert str(caught.value).startswith(says)


# matmul


@given(st.data())
def test_a_vector_in_a_product_means_what_numpy_means(data):
    batch, (m, k) = data.draw(shapes(max_rank=2)), (2, 3)
    matrix = input_("m", TensorType(FP32, (*batch, m, k)))
    right = input_("r", TensorType(FP32, (k,)))
    left = input_("l", TensorType(FP32, (m,)))
    fed = {node: counted(node) for node in (matrix, left, right)}
    for x, y in ((matrix, right), (left, matrix), (right, right)):
        z = read("matmul", x=x, y=y)
        expected = np.asarray(fed[x] @ fed[y])
        assert z.type.shape == expected.shape
        np.testing.assert_array_equal(value_of(z, {x: fed[x], y: fed[y]}), expected)


def test_a_vector_is_not_transposed():
    vector = input_("v", typed("fp32[3]"))
    with pytest.raises(MilError, match="matmul: a vector is not transposed"):
        read("matmul", x=vector, y=X, transpose_x=True)


# what constants say


def test_times_minus_one_reads_as_neg_and_nothing_else_does():
    x = input_("x", typed("fp16[2]"))
    n = input_("n", typed("int32[2]"))
    assert read("mul", x=x, y=const(-1, FP16)).op == Neg()
    assert read("mul", x=x, y=const([-1, -1], FP16)).op.name == "mul"
    assert read("mul", x=const(-1, FP16), y=x).op.name == "mul"
    assert read("mul", x=n, y=const(-1, INT32)).op.name == "mul"
    with pytest.raises(ShapeError, match="mul: element types differ"):
        read("mul", x=x, y=const(-1, FP32))


def test_the_exponent_of_pow_is_a_lone_constant_or_a_tensor_of_its_operands_type():
    x = input_("x", typed("fp16[2,3]"))
    assert read("pow", x=x, y=const(-0.5, FP16)).op == Pow(-0.5)
    assert read("pow", x=x, y=const([[3.0]], FP16)).op == Pow(3.0)
    for y in (const([2.0, 3.0, 4.0], FP16), const([[[2.0]]], FP16), x):
        assert read("pow", x=x, y=y).op == PowBy()
    with pytest.raises(ShapeError, match="pow: element types differ"):
        read("pow", x=x, y=const(2.0, FP32))


def test_a_division_of_integers_is_a_row_of_its_own():
    n, x = input_("n", typed("int32[2]")), input_("x", typed("fp16[2]"))
    assert (read("real_div", x=n, y=n).op, read("real_div", x=x, y=x).op) == (WholeDiv(), RealDiv())


def test_the_default_epsilon_is_nothing_in_fp16():
    # MIL reference, 3: the default, 1e-12, is 0 there; a converted program says so in fp32.
    narrow, wide = input_("x", typed("fp16[2]")), input_("x", typed("fp32[2]"))
    assert read("rsqrt", x=narrow).op == Rsqrt(0.0)
    assert read("rsqrt", x=wide).op == Rsqrt(float(np.float32(1e-12)))
    tiny = float(np.float32(1e-12))
    assert read("rsqrt", x=narrow, epsilon=tiny).op.eps == tiny


def test_softmax_runs_along_the_last_axis_unless_told():
    assert read("softmax", x=X).op.axis == -1


def test_one_value_is_a_tuple_of_one():
    assert read("concat", values=X, axis=0).args == (X,)


def test_a_cast_knows_the_dtypes_of_mil():
    assert read("cast", x=X, dtype="int8").type == typed("int8[2,3,4]")
    with pytest.raises(MilError, match="cast: no such dtype: got fp64"):
        read("cast", x=X, dtype="fp64")


@pytest.mark.parametrize("name", ["input", "const", "weight"])
def test_a_leaf_is_no_statement(name):
    args = MilArgs(name, nodes={}, literals={}, tuples={}, opset=18)
    with pytest.raises(MilError, match=f"a {name} is not read as a statement"):
        Op.table[name].read(args)
