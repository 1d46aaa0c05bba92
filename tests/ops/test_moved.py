"""What statements that move elements mean: as numpy says it, and as torch does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.sampling import typed
from ops.test_reading import counted, read, value_of
from oracles import torch as torch_oracle
from strategies import shapes

from orion_ane.errors import MilError, OrionError, ShapeError
from orion_ane.ir import Graph, Node
from orion_ane.mil import emit, parse_graph
from orion_ane.ops import const, evaluate, input_
from orion_ane.ops.foreign.fill import filled
from orion_ane.ops.foreign.order import TopkIndices, TopkValues
from orion_ane.ops.foreign.slices import StridedSlice
from orion_ane.ops.shape import Pad, Slice
from orion_ane.types import DType, TensorType

FP32, INT32, BOOL = DType.FP32, DType.INT32, DType.BOOL
X = input_("x", typed("fp32[2,3,4]"))
IMAGES = input_("x", typed("fp32[4,8,4,6]"))


def meant(node: Node, *fed: Node) -> np.ndarray:
    """The value of a node, its inputs counted through."""
    return value_of(node, {leaf: counted(leaf) for leaf in fed})


# slices


@st.composite
def numpy_slices(draw):
    shape = draw(shapes(min_rank=1, max_size=5))
    found = []
    for size in shape:
        begin, end = (draw(st.integers(-size - 1, size + 1)) for _ in "be")
        stride = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        masks = (draw(st.booleans()), draw(st.booleans()))
        index = slice(None if masks[0] else begin, None if masks[1] else end, stride)
        if not range(size)[index]:
            begin, end, stride, masks, index = 0, size, 1, (False, False), slice(None)
        found.append((begin, end, stride, *masks, index))
    *lists, indices = zip(*found, strict=True)
    keys = ("begin", "end", "stride", "begin_mask", "end_mask")
    return shape, dict(zip(keys, lists, strict=True)), indices


@given(numpy_slices())
def test_a_strided_slice_means_what_numpy_means(drawn):
    shape, args, index = drawn
    x = input_("x", TensorType(INT32, shape))
    y = read("slice_by_index", x=x, **args)
    np.testing.assert_array_equal(meant(y, x), counted(x)[index])
    assert isinstance(y.op, Slice | StridedSlice)


def test_a_squeezed_axis_beside_a_strided_one_is_one_place():
    args = {"begin": (1, 0, 3), "end": (2, 3, 0), "stride": (1, 2, -1)}
    y = read("slice_by_index", x=X, **args, squeeze_mask=(False, True, True), end_mask=(True,) * 3)
    np.testing.assert_array_equal(meant(y, X), counted(X)[1:, 0, 3])
    y = read("slice_by_index", x=X, **args, squeeze_mask=(False, True, False))
    np.testing.assert_array_equal(meant(y, X), counted(X)[1:2, 0, 3:0:-1])


@given(numpy_slices(), st.booleans())
def test_an_updated_slice_means_what_numpy_means(drawn, known):
    shape, args, index = drawn
    x = input_("x", TensorType(FP32, shape))
    expected = counted(x)
    u = input_("u", TensorType(FP32, expected[index].shape))
    ends = {key: np.array(args.pop(key), np.int32) for key in ("begin", "end")}
    fed = {x: expected.copy(), u: counted(u)}
    if known:
        places = {key: const(value, INT32) for key, value in ends.items()}
    else:  # a begin beyond the axis is clamped where it is known; a run drops what lies outside
        first = [range(n)[i][0] for n, i in zip(shape, index, strict=True)]
        ends["begin"] = np.array(first, np.int32)
        args["begin_mask"] = (False,) * len(shape)
        places = {key: input_(key, TensorType.of(value)) for key, value in ends.items()}
        fed.update({places[key]: value for key, value in ends.items()})
    y = read("slice_update", x=x, update=u, **places, **args)
    expected[index] = counted(u)
    np.testing.assert_array_equal(value_of(y, fed), expected)


def test_an_update_at_a_known_place_has_a_gradient():
    end = const([2, 3, 4], INT32)
    args = {"stride": (1, -1, 2), "end_mask": (False, True, False)}
    args["squeeze_mask"] = (True, False, False)
    u = input_("u", typed("fp32[3,2]"))
    y = read("slice_update", x=X, update=u, begin=const([1, 2, 0], INT32), end=end, **args)
    to_x, to_u, *_ = y.op.grad(y, X)
    dy = counted(X)
    np.testing.assert_array_equal(meant(to_u, X), dy[1, ::-1, 0:4:2])
    dy[1, ::-1, 0:4:2] = 0
    np.testing.assert_array_equal(meant(to_x, X), dy)
    with pytest.raises(MilError, match="slice_update: update does not fit: got fp32"):
        read("slice_update", x=X, update=u, begin=const([1, 0, 0], INT32), end=end)


def test_a_slice_by_size_begins_where_it_is_told_or_where_it_is_known():
    known = read("slice_by_size", x=X, begin=const([0, -2, 1], INT32), size=(2, -1, 2))
    np.testing.assert_array_equal(meant(known, X), counted(X)[:, 1:, 1:3])
    assert isinstance(known.op, Slice)
    at = input_("at", typed("int32[3]"))
    late = read("slice_by_size", x=X, begin=at, size=(1, 2, 3))
    fed = {X: counted(X), at: np.array([1, -2, 9], np.int32)}
    np.testing.assert_array_equal(value_of(late, fed), counted(X)[1:2, 1:3, 1:4])


@pytest.mark.parametrize("axes", [(), (0,), (1, -1), (0, 1, 2)])
def test_reverse_turns_the_axes_around_that_it_names(axes):
    given_axes = {"axes": axes} if axes else {}
    y = read("reverse", x=X, **given_axes)
    np.testing.assert_array_equal(meant(y, X), np.flip(counted(X), axes or None))


# shapes


@pytest.mark.parametrize(
    ("op", "args", "shape"),
    [
        ("expand_dims", {"axes": (0, -1)}, (1, 2, 3, 4, 1)),
        ("expand_dims", {"axes": (1,)}, (2, 1, 3, 4)),
        ("squeeze", {}, (2, 3, 4)),
        ("squeeze", {"axes": (1,)}, (2, 3, 4)),
        ("flatten2d", {}, (2, 12)),
        ("flatten2d", {"axis": -1}, (6, 4)),
        ("flatten2d", {"axis": 0}, (1, 24)),
    ],
)
def test_a_statement_that_only_reshapes_reads_as_a_reshape(op, args, shape):
    y = read(op, x=X, **args)
    assert y.op.name == "reshape"
    assert y.type.shape == shape


def test_squeeze_drops_axes_of_one():
    x = input_("x", typed("fp32[1,3,1,4]"))
    assert read("squeeze", x=x).type.shape == (3, 4)
    assert read("squeeze", x=x, axes=(-2,)).type.shape == (1, 3, 4)


def test_reshape_like_takes_its_sizes_from_others():
    refs = (input_("a", typed("fp32[4,3,9]")), input_("b", typed("int32[1,2]")))
    lists = {"begins": (0, 1), "ends": (2, 0)}
    nodes = {key: tuple(const(n, INT32) for n in values) for key, values in lists.items()}
    masks = tuple(const(flag, BOOL) for flag in (False, True))
    y = read("reshape_like", x=X, ref_tensors=refs, **nodes, end_masks=masks)
    assert y.type.shape == (4, 3, 2)
    with pytest.raises(MilError, match="reshape_like: begins do not fit"):
        read("reshape_like", x=X, ref_tensors=refs, begins=refs, ends=refs, end_masks=refs)


@given(st.data(), shapes(max_rank=4))
def test_stack_and_interleave_mean_what_numpy_means(data, shape):
    a, b = (input_(name, TensorType(INT32, shape)) for name in "ab")
    fed = {a: counted(a), b: counted(b) + 100}
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    stacked = np.stack(list(fed.values()), axis)
    y = read("stack", values=(a, b), axis=axis)
    np.testing.assert_array_equal(value_of(y, fed), stacked)
    if shape and -len(shape) <= axis < len(shape):
        at = axis % len(shape)
        woven = np.stack(list(fed.values()), at + 1)
        woven = woven.reshape(*shape[:at], 2 * shape[at], *shape[at + 1 :])
        y = read("concat", values=(a, b), axis=axis, interleave=True)
        np.testing.assert_array_equal(value_of(y, fed), woven)


def test_scalars_in_a_row_are_a_vector():
    y = read("concat", values=(const(3, INT32), const(1, INT32)), axis=0)
    assert meant(y).tolist() == [3, 1]


def test_pixels_are_shuffled_as_torch_does():
    torch = torch_oracle()
    images = torch.from_numpy(counted(IMAGES))
    shuffled = meant(read("pixel_shuffle", x=IMAGES, upscale_factor=2), IMAGES)
    np.testing.assert_array_equal(shuffled, torch.pixel_shuffle(images, 2).numpy())
    back = meant(read("pixel_unshuffle", x=IMAGES, downscale_factor=2), IMAGES)
    np.testing.assert_array_equal(back, torch.pixel_unshuffle(images, 2).numpy())


def test_depth_has_the_place_before_the_channel():
    x = counted(IMAGES)
    n, c, h, w = x.shape
    blocks = x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2)
    space = blocks.reshape(n, c // 4, h * 2, w * 2)
    y = read("depth_to_space", x=IMAGES, block_size=2)
    np.testing.assert_array_equal(meant(y, IMAGES), space)
    z = input_("z", y.type)
    back = read("space_to_depth", x=z, block_size=2)
    np.testing.assert_array_equal(value_of(back, {z: space}), x)


def test_a_batch_becomes_space_and_back():
    x = counted(IMAGES)  # four images make one of twice the height and width
    space = x.reshape(2, 2, 1, 8, 4, 6).transpose(2, 3, 4, 0, 5, 1).reshape(1, 8, 8, 12)
    block = {"block_shape": (2, 2)}
    crops = const([[1, 2], [0, 3]], INT32)
    y = read("batch_to_space", x=IMAGES, crops=crops, **block)
    np.testing.assert_array_equal(meant(y, IMAGES), space[:, :, 1:-2, :-3])
    z = input_("z", typed("fp32[1,8,6,12]"))
    back = read("space_to_batch", x=z, paddings=const([[1, 1], [0, 0]], INT32), **block)
    padded = np.pad(space[:, :, 1:-1], ((0, 0), (0, 0), (1, 1), (0, 0)))
    expected = padded.reshape(8, 4, 2, 6, 2).transpose(2, 4, 0, 1, 3).reshape(x.shape)
    np.testing.assert_array_equal(value_of(back, {z: space[:, :, 1:-1]}), expected)


def test_windows_slide_by_their_stride():
    y = read("sliding_windows", x=X, axis=-1, size=2, stride=2)
    windows = np.lib.stride_tricks.sliding_window_view(counted(X), 2, axis=2)[:, :, ::2]
    np.testing.assert_array_equal(meant(y, X), windows)


def test_a_crop_takes_from_both_ends():
    y = read("crop", x=IMAGES, crop_height=(1, 2), crop_width=(0, 3))
    np.testing.assert_array_equal(meant(y, IMAGES), counted(IMAGES)[:, :, 1:-2, :-3])


@pytest.mark.parametrize(
    ("op", "args", "says"),
    [
        ("expand_dims", {"axes": (5,)}, "expand_dims: no such axis: got (5,), want -4 to 3"),
        ("expand_dims", {"axes": (1, 1)}, "expand_dims: an axis is given twice"),
        ("squeeze", {"axes": (3,)}, "squeeze: no such axis"),
        ("stack", {"values": (X, X), "axis": 4}, "stack: no such axis"),
        ("concat", {"values": (X, X), "axis": 3, "interleave": True}, "concat: no such axis"),
        ("pixel_shuffle", {"upscale_factor": 2}, "pixel_shuffle: not an image"),
        ("sliding_windows", {"axis": 0, "size": 3}, "sliding_windows: windows do not fit"),
        ("crop", {"crop_height": (1,), "crop_width": (0, 0)}, "crop: crops do not fit"),
        ("reverse", {"axes": (3,)}, "reverse: no such axis"),
        ("slice_by_size", {"begin": const([0], INT32), "size": (1,)}, "slice_by_size: one for"),
        ("range_1d", {"start": X, "end": X, "step": X}, "range_1d: not constants"),
        ("upsample_bilinear", {"scale_factor_height": -1.0}, "upsample_bilinear: factors do not"),
        ("resize", {"shape": (1,), "resized_dims": 2}, "resize: sizes do not fit"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_read(op, args, says):
    rest = {} if "values" in args or "start" in args else {"x": X}
    with pytest.raises(OrionError) as caught:
        read(op, **rest, **args)
    assert str(caught.value).startswith(says)


# values that are known


def test_a_shape_and_a_range_are_constants():
    shape = read("shape", x=X)
    assert shape.op.value.tolist() == [2, 3, 4]
    ends = {"start": const(7, INT32), "end": const(0, INT32), "step": const(-3, INT32)}
    assert read("range_1d", **ends).op.value.tolist() == [7, 4, 1]
    long = {"start": const(1, INT32), "end": const(4_000_000, INT32), "step": const(3, INT32)}
    np.testing.assert_array_equal(meant(read("range_1d", **long)), np.arange(1, 4_000_000, 3))


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), ()])
def test_a_filled_tensor_is_one_value_over_and_over(shape):
    y = read("fill_like", ref_tensor=input_("r", TensorType(INT32, shape)), value=const(1.5, FP32))
    np.testing.assert_array_equal(meant(y), np.full(shape, 1.5, np.float32))
    if shape:
        assert meant(read("fill", shape=shape)).tolist() == np.zeros(shape).tolist()


def test_a_large_tensor_of_one_value_is_no_large_constant():
    large = filled(const(1, FP32), (1 << 15, 1 << 15))
    assert large.type.elements == 1 << 30


@given(st.data(), shapes(max_rank=3))
def test_one_hot_compares_with_places(data, shape):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    i = input_("i", TensorType(INT32, shape))
    y = read("one_hot", indices=i, one_hot_vector_size=3, axis=axis, on_value=const(2.0, FP32))
    expected = np.moveaxis(np.eye(4, 3, dtype=np.float32)[np.minimum(counted(i), 3)] * 2, -1, axis)
    np.testing.assert_array_equal(meant(y, i), expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_a_border_repeats_what_is_inside(mode):
    y = read("pad", x=X, pad=(1, 2, 0, 3), mode=mode)
    expected = np.pad(
        counted(X), ((0, 0), (1, 2), (0, 3)), "reflect" if mode == "reflect" else "edge"
    )
    np.testing.assert_array_equal(meant(y, X), expected)


def test_a_border_of_one_value_is_laid_around_and_zeros_are_the_usual_pad():
    y = read("pad", x=X, pad=(1, 2), constant_val=2.5)
    expected = np.pad(counted(X), ((0, 0), (0, 0), (1, 2)), constant_values=2.5)
    np.testing.assert_array_equal(meant(y, X), expected)
    assert isinstance(read("pad", x=X, pad=(1, 2), constant_val=0.0).op, Pad)


# indices


@pytest.mark.parametrize(("opset", "expected"), [(16, [23, 20]), (17, [0, 20])])
def test_a_negative_index_counts_from_the_end_up_to_ios16(opset, expected):
    i = input_("i", typed("int32[2]"))
    y = read("gather", x=X, indices=i, axis=2, opset=opset)
    fed = {X: counted(X), i: np.array([-1, 0], np.int32)}
    assert value_of(y, fed)[1, 2].tolist() == expected
    y = read("gather", x=X, indices=const([-1, 0], INT32), axis=2, opset=opset)
    assert meant(y, X)[1, 2].tolist() == expected


def test_points_count_from_the_end_of_their_axes_up_to_ios16():
    i = input_("i", typed("int16[2,2]"))
    y = read("gather_nd", x=X, indices=i, opset=16)
    fed = {X: counted(X), i: np.array([[-1, -3], [0, -1]], np.int16)}
    np.testing.assert_array_equal(value_of(y, fed), counted(X)[[-1, 0], [-3, -1]])


def test_an_update_without_a_place_is_dropped_and_refused_where_indices_are_validated():
    i, u = input_("i", typed("int32[2]")), input_("u", typed("fp32[2,3,4]"))
    fed = {X: counted(X), i: np.array([5, 0], np.int32), u: np.ones((2, 3, 4), np.float32)}
    y = read("scatter", data=X, indices=i, updates=u)
    expected = counted(X)
    expected[0] += 1
    np.testing.assert_array_equal(value_of(y, fed), expected)
    strict = read("scatter", data=X, indices=i, updates=u, validate_indices=True)
    with pytest.raises(ShapeError, match="scatter: an index is out of range"):
        value_of(strict, fed)


@pytest.mark.parametrize("mode", ["add", "sub", "mul", "div", "max", "min", "update"])
def test_repeated_indices_are_taken_one_after_the_other(mode):
    data = input_("d", typed("fp32[3]"))
    i, u = input_("i", typed("int32[3]")), input_("u", typed("fp32[3]"))
    fed = {
        data: np.array([1, 2, 3], np.float32),
        i: np.array([1, 1, 2], np.int32),
        u: np.array([4, 8, 0.5], np.float32),
    }
    expected = {
        "add": [1, 14, 3.5],
        "sub": [1, -10, 2.5],
        "mul": [1, 64, 1.5],
        "div": [1, 2 / 32, 6],
        "max": [1, 8, 3],
        "min": [1, 2, 0.5],
        "update": [1, 8, 0.5],
    }
    y = read("scatter", data=data, indices=i, updates=u, mode=mode)
    assert value_of(y, fed).tolist() == expected[mode]


# order


def test_topk_has_two_results_that_agree_and_ties_keep_their_order():
    x = input_("x", typed("fp32[6]"))
    fed = {x: np.array([3, 1, 3, 7, 1, 3], np.float32)}
    values, places = read("topk", x=x, k=4, axis=0, results=2)
    assert value_of(values, fed).tolist() == [7, 3, 3, 3]
    assert value_of(places, fed).tolist() == [3, 0, 2, 5]
    lowest, places = read("topk", x=x, k=3, axis=0, ascending=True, results=2)
    assert value_of(lowest, fed).tolist() == [1, 1, 3]
    assert value_of(places, fed).tolist() == [1, 4, 0]
    assert isinstance(read("topk", x=x, k=-1, return_indices=False), Node)


@pytest.mark.parametrize("short", [False, True])
def test_results_of_one_statement_are_written_in_one(short):
    values, places = read("topk", x=X, k=2, axis=-1, results=2)
    graph = Graph({"x": X}, {"values": values, "places": places})
    text = emit(graph, short=short).text
    assert text.count("topk") == 1
    again = parse_graph(text)
    assert [node.op for node in again.outputs.values()] == [values.op, places.op]
    fed = {"x": counted(X)}
    np.testing.assert_array_equal(evaluate(again, fed)["places"], evaluate(graph, fed)["places"])


def test_a_result_alone_is_written_beside_one_that_nobody_takes():
    _, places = read("topk", x=X, k=2, results=2)
    text = emit(Graph({"x": X}, {"y": places}), short=True).text
    assert "tensor<fp32, [2,3,2]> v0, tensor<int32, [2,3,2]> y = topk(" in text
    assert parse_graph(text).outputs["y"].op == places.op


@pytest.mark.parametrize("names", ["vpvp", "vpp", "vv", "pvp"])
def test_equal_results_twice_are_two_statements(names):
    ops = {"v": TopkValues(2, 0, False), "p": TopkIndices(2, 0, False)}
    made = {f"y{i}": Node(ops[name], (X,)) for i, name in enumerate(names)}
    text = emit(Graph({"x": X}, made)).text
    assert text.count("topk(") == 2
    again = parse_graph(text)
    assert [node.op for node in again.outputs.values()] == [ops[name] for name in names]


def test_only_the_first_elements_of_a_sequence_turn_around():
    lengths = input_("l", typed("int32[2]"))
    y = read("reverse_sequence", x=X, lengths=lengths, seq_axis=2, batch_axis=0)
    x = counted(X)
    found = value_of(y, {X: x, lengths: np.array([3, 0], np.int32)})
    x[0, :, :3] = x[0, :, 2::-1]
    np.testing.assert_array_equal(found, x)
