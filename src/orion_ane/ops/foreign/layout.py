"""Statements that only move elements, read as the reshapes, transposes and slices that they are."""

from __future__ import annotations

from math import prod

import numpy as np

from orion_ane.errors import MilError
from orion_ane.ir.node import Node, Op
from orion_ane.ir.spelling import MilArgs
from orion_ane.ops.foreign.indexing import Gather
from orion_ane.ops.leaf import Const, const
from orion_ane.ops.shape import Concat, Pad, concat, reshape, slice_by_index, transpose
from orion_ane.types import DType, TensorType


def _axes(args: MilArgs, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Axes of a tensor of `rank`, counted from the front."""
    if any(not -rank <= axis < rank for axis in axes):
        raise MilError(args.op, "no such axis", got=axes, want=f"{-rank} to {rank - 1}")
    return tuple(axis % rank for axis in axes)


def _read_expand_dims(args: MilArgs) -> Node:
    x, given = args.node("x"), args.integers("axes")
    rank = x.type.rank + len(given)
    axes = set(_axes(args, given, rank))
    if len(axes) != len(given):
        raise MilError(args.op, "an axis is given twice", got=given)
    sizes = iter(x.type.shape)
    return reshape(x, tuple(1 if axis in axes else next(sizes) for axis in range(rank)))


def _read_squeeze(args: MilArgs) -> Node:
    """Axes of another size than 1 stay, as PyTorch has it."""
    x = args.node("x")
    rank = x.type.rank
    axes = _axes(args, args.integers("axes"), rank) if "axes" in args else range(rank)
    kept = tuple(n for axis, n in enumerate(x.type.shape) if n != 1 or axis not in axes)
    return reshape(x, kept)


def _read_flatten2d(args: MilArgs) -> Node:
    x, axis = args.node("x"), args.integer("axis", 1)
    shape = x.type.shape
    return reshape(x, (prod(shape[:axis]), prod(shape[axis:])))


def _read_reshape_like(args: MilArgs) -> Node:
    x, refs = args.node("x"), args.nodes("ref_tensors")
    lists = []
    for key in ("begins", "ends", "end_masks"):
        nodes = args.nodes(key)
        if len(nodes) != len(refs) or any(
            not isinstance(n.op, Const) or n.type.rank for n in nodes
        ):
            want = f"{len(refs)} constant scalars"
            raise MilError(
                args.op, f"{key} do not fit", got=[str(n.type) for n in nodes], want=want
            )
        lists.append([n.op.value.item() for n in nodes if isinstance(n.op, Const)])
    shape: tuple[int, ...] = ()
    for ref, begin, end, is_open in zip(refs, *lists, strict=True):
        shape += ref.type.shape[int(begin) : None if is_open else int(end)]
    return reshape(x, shape)


def _read_stack(args: MilArgs) -> Node:
    values = args.nodes("values")
    rank = values[0].type.rank + 1 if values else 1
    (axis,) = _axes(args, (args.integer("axis"),), rank)
    parts = []
    for value in values:
        shape = value.type.shape
        parts.append(reshape(value, (*shape[:axis], 1, *shape[axis:])))
    return concat(*parts, axis=axis)


def _read_concat(args: MilArgs) -> Node:
    """Scalars make a vector; interleaved parts are joined on an axis of their own, behind."""
    values = args.nodes("values")
    if values and all(value.type.rank == 0 for value in values):
        _axes(args, (args.integer("axis"),), 1)
        args.flag("interleave", default=False)  # the same, either way
        return concat(*(reshape(value, (1,)) for value in values), axis=0)
    if not args.flag("interleave", default=False):
        return Concat.read(args)
    (axis,) = _axes(args, (args.integer("axis"),), values[0].type.rank if values else 1)
    shape = values[0].type.shape if values else ()
    if any(value.type.shape != shape for value in values):
        got = [str(value.type) for value in values]
        raise MilError(args.op, "sizes differ", got=got, want="equal sizes where interleaved")
    flat = (prod(shape[: axis + 1]), 1, prod(shape[axis + 1 :]))
    joined = concat(*(reshape(value, flat) for value in values), axis=1)
    return reshape(joined, (*shape[:axis], shape[axis] * len(values), *shape[axis + 1 :]))


def _read_crop(args: MilArgs) -> Node:
    x = args.node("x")
    height, width = args.integers("crop_height"), args.integers("crop_width")
    if x.type.rank < 2 or len(height) != 2 or len(width) != 2:
        got = f"{height} and {width} of x {x.type}"
        raise MilError(args.op, "crops do not fit", got=got, want="two on each of the last axes")
    return cropped(x, height, width)


def cropped(x: Node, height: tuple[int, ...], width: tuple[int, ...]) -> Node:
    """x without what lies at the ends of its last two axes."""
    shape = x.type.shape
    begin = (*(0,) * (len(shape) - 2), height[0], width[0])
    return slice_by_index(x, begin, (*shape[:-2], shape[-2] - height[1], shape[-1] - width[1]))


def _read_sliding_windows(args: MilArgs) -> Node:
    """Windows are a gather at places that are known."""
    x, size, stride = args.node("x"), args.integer("size"), args.integer("stride", 1)
    (axis,) = _axes(args, (args.integer("axis"),), x.type.rank)
    n = x.type.shape[axis]
    if not 1 <= size <= n or stride < 1:
        raise MilError(args.op, "windows do not fit", got=f"{size} by {stride} on {n}")
    starts = np.arange(0, n - size + 1, stride)
    places = const(starts[:, None] + np.arange(size), DType.INT32)
    return Node(Gather(axis), (x, places))


# Blocks of height and width, into channels or the batch and back.  At once they would take six
# axes, and MIL has five: height goes first, then width, in four.


def unshuffled(x: Node, high: int, wide: int) -> Node:
    """[N, C, H, W] -> [N, C·high·wide, H/high, W/wide]: channel, then place in the block."""
    n, c, h, w = x.type.shape
    rows = transpose(reshape(x, (n * c, h // high, high, w)), (0, 2, 1, 3))
    columns = reshape(rows, (n * c * high, h // high, w // wide, wide))
    blocks = transpose(columns, (0, 3, 1, 2))
    return reshape(blocks, (n, c * high * wide, h // high, w // wide))


def shuffled(x: Node, high: int, wide: int) -> Node:
    """[N, C·high·wide, H, W] -> [N, C, H·high, W·wide], the way back."""
    n, deep, h, w = x.type.shape
    c = deep // (high * wide)
    columns = transpose(reshape(x, (n * c * high, wide, h, w)), (0, 2, 3, 1))
    rows = transpose(reshape(columns, (n * c, high, h, w * wide)), (0, 2, 1, 3))
    return reshape(rows, (n, c, h * high, w * wide))


def _image(args: MilArgs, *blocks: int) -> Node:
    x = args.node("x")
    if x.type.rank != 4:
        raise MilError(args.op, "not an image", got=x.type, want="[N, C, H, W]")
    if min(blocks) < 1:
        raise MilError(args.op, "blocks do not fit", got=blocks, want="from 1")
    return x


def _divides(args: MilArgs, sizes: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    if any(n % block for n, block in zip(sizes, blocks, strict=True)):
        raise MilError(args.op, "does not divide", got=f"{sizes} by {blocks}")


def _read_pixel_shuffle(args: MilArgs) -> Node:
    block = args.integer("upscale_factor")
    x = _image(args, block)
    _divides(args, x.type.shape[1:2], (block * block,))
    return shuffled(x, block, block)


def _read_pixel_unshuffle(args: MilArgs) -> Node:
    block = args.integer("downscale_factor")
    x = _image(args, block)
    _divides(args, x.type.shape[2:], (block, block))
    return unshuffled(x, block, block)


def _read_depth_to_space(args: MilArgs) -> Node:
    """The place in the block comes before the channel, unlike `pixel_shuffle`."""
    block = args.integer("block_size")
    x = _image(args, block)
    n, deep, h, w = x.type.shape
    _divides(args, (deep,), (block * block,))
    c = deep // (block * block)
    channels = transpose(reshape(x, (n, block * block, c, h, w)), (0, 2, 1, 3, 4))
    return shuffled(reshape(channels, (n, deep, h, w)), block, block)


def _read_space_to_depth(args: MilArgs) -> Node:
    block = args.integer("block_size")
    x = _image(args, block)
    n, c, h, w = x.type.shape
    _divides(args, (h, w), (block, block))
    deep = (n, c, block * block, h // block, w // block)
    blocks = transpose(reshape(unshuffled(x, block, block), deep), (0, 2, 1, 3, 4))
    return reshape(blocks, (n, c * block * block, h // block, w // block))


def _pairs(args: MilArgs, key: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two integers for height, two for width."""
    node = args.node(key)
    if not isinstance(node.op, Const) or node.type != TensorType(DType.INT32, (2, 2)):
        raise MilError(args.op, f"{key} do not fit", got=node.type, want="a constant int32[2,2]")
    height, width = node.op.value.tolist()
    return tuple(height), tuple(width)


def _blocks(args: MilArgs) -> tuple[int, int]:
    found = args.integers("block_shape")
    if len(found) != 2:
        raise MilError(args.op, "blocks do not fit", got=found, want="two")
    return found[0], found[1]


def _read_space_to_batch(args: MilArgs) -> Node:
    high, wide = _blocks(args)
    x = _image(args, high, wide)
    (top, bottom), (left, right) = _pairs(args, "paddings")
    if (top, bottom, left, right) != (0, 0, 0, 0):
        x = Node(Pad((0, 0, top, left), (0, 0, bottom, right)), (x,))
    n, c, h, w = x.type.shape
    _divides(args, (h, w), (high, wide))
    deep = (n, c, high * wide, h // high, w // wide)
    blocks = transpose(reshape(unshuffled(x, high, wide), deep), (2, 0, 1, 3, 4))
    return reshape(blocks, (n * high * wide, c, h // high, w // wide))


def _read_batch_to_space(args: MilArgs) -> Node:
    high, wide = _blocks(args)
    x = _image(args, high, wide)
    many, c, h, w = x.type.shape
    _divides(args, (many,), (high * wide,))
    n = many // (high * wide)
    blocks = transpose(reshape(x, (high * wide, n, c, h, w)), (1, 2, 0, 3, 4))
    whole = shuffled(reshape(blocks, (n, c * high * wide, h, w)), high, wide)
    crops = _pairs(args, "crops")
    return whole if crops == ((0, 0), (0, 0)) else cropped(whole, *crops)


Op.readers.update(
    {
        "batch_to_space": _read_batch_to_space,
        "concat": _read_concat,
        "crop": _read_crop,
        "depth_to_space": _read_depth_to_space,
        "expand_dims": _read_expand_dims,
        "flatten2d": _read_flatten2d,
        "pixel_shuffle": _read_pixel_shuffle,
        "pixel_unshuffle": _read_pixel_unshuffle,
        "reshape_like": _read_reshape_like,
        "sliding_windows": _read_sliding_windows,
        "space_to_batch": _read_space_to_batch,
        "space_to_depth": _read_space_to_depth,
        "squeeze": _read_squeeze,
        "stack": _read_stack,
    }
)
