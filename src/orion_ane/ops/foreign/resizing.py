"""Images in another size: each axis is read at places that lie between its elements."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import floor, isfinite

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.foreign.indexing import Gather
from orion_ane.ops.leaf import const
from orion_ane.ops.linear import matmul
from orion_ane.ops.rules import FLOATS, typed, unary, want_dtypes
from orion_ane.ops.shape import reshape
from orion_ane.types import Array, DType, TensorType

SAMPLING = (
    "DEFAULT",
    "STRICT_ALIGN_CORNERS",
    "ALIGN_CORNERS",
    "OFFSET_CORNERS",
    "UNALIGN_CORNERS",
)
"""Where on an axis its new elements lie, as `resize_bilinear` names it."""
MAX_SIZE = 1 << 31


def spaced(mode: str, first: Array, last: Array, count: int) -> Array:
    """`count` places from `first` to `last`, which are the outermost elements, as `mode` has them.

    A new axis, the last, is theirs.
    """
    i, length = np.arange(count), np.asarray(last - first)[..., None]
    start = np.asarray(first)[..., None]
    match mode:
        case "DEFAULT":
            offset = i * ((length + 1) / count)
        case "OFFSET_CORNERS":
            offset = (i + 0.5) * (np.maximum(1, length) / count)
        case "UNALIGN_CORNERS":
            offset = (i + 0.5) * ((length + 1) / count) - 0.5
        case "ALIGN_CORNERS" if count == 1:
            offset = length / 2
        case _:
            offset = length * (i / max(count - 1, 1))  # exact at both ends
    found: Array = start + offset
    return found


class Resized(Op):
    """An image whose last two axes have another size: a new element is weighed from old ones."""

    height: int
    width: int

    @abstractmethod
    def weighed(self, size: int, count: int) -> tuple[Array, Array, Array]:
        """For each of `count` new places two old ones, and the weight of the second."""

    def infer(self, args: Types) -> TensorType:
        x = unary(self, args)
        want_dtypes(self, x, FLOATS)
        if x.rank < 3:
            raise ShapeError(self.name, "rank too low", got=x, want="at least 3")
        if not (0 < self.height < MAX_SIZE and 0 < self.width < MAX_SIZE):
            raise ShapeError(self.name, "sizes start at 1", got=(self.height, self.width))
        return typed(self, x.dtype, (*x.shape[:-2], self.height, self.width))

    def eval(self, args: Arrays) -> Array:
        (x,) = args
        for axis, count in ((-2, self.height), (-1, self.width)):
            low, high, weight = self.weighed(x.shape[axis], count)
            w = weight.astype(x.dtype).reshape((-1, 1) if axis == -2 else (-1,))
            below, above = np.take(x, low, axis), np.take(x, high, axis)
            x = np.where(w == 0, below, below * (1 - w) + above * w)
        return x

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        height, width = y.args[0].type.shape[-2:]
        rows = self._matrix(height, self.height)  # [height, self.height]
        columns = self._matrix(width, self.width)
        dtype = dy.type.dtype
        return (matmul(const(rows, dtype), matmul(dy, const(columns.T, dtype))),)

    def _matrix(self, size: int, count: int) -> Array:
        low, high, weight = self.weighed(size, count)
        matrix = np.zeros((size, count))
        np.add.at(matrix, (low, np.arange(count)), 1 - weight)
        np.add.at(matrix, (high, np.arange(count)), weight)
        return matrix


@dataclass(frozen=True)
class ResizeBilinear(Resized, name="resize_bilinear"):
    """x's last two axes at places between its elements.  x: F[..., H, W] -> F[..., height, width].

    `mode` says where they lie; those outside are drawn to the edge.
    """

    height: int
    width: int
    mode: str

    def infer(self, args: Types) -> TensorType:
        if self.mode not in SAMPLING:
            raise ShapeError(self.name, "no such mode", got=self.mode, want=list(SAMPLING))
        return super().infer(args)

    def weighed(self, size: int, count: int) -> tuple[Array, Array, Array]:
        places = spaced(self.mode, np.array(0), np.array(size - 1), count)
        places = np.clip(places, 0, size - 1)
        low = np.floor(places).astype(np.int64)
        return low, np.minimum(low + 1, size - 1), places - low

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x",), {**_sizes(self), "sampling_mode": self.mode})

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        height, width = (args.integer(f"target_size_{side}", 1) for side in ("height", "width"))
        return Node(cls(height, width, args.text("sampling_mode", "DEFAULT")), (args.node("x"),))


@dataclass(frozen=True)
class ResizeNearest(Resized, name="resize_nearest_neighbor"):
    """x's last two axes, each new element the one that it lies on or behind.

    x: F[..., H, W] -> F[..., height, width].
    """

    height: int
    width: int

    def weighed(self, size: int, count: int) -> tuple[Array, Array, Array]:
        low = np.arange(count) * size // count
        return low, low, np.zeros(count)

    def mil(self) -> MilCall:
        return MilCall(self.name, ("x",), _sizes(self))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        height, width = (args.integer(f"target_size_{side}") for side in ("height", "width"))
        return Node(cls(height, width), (args.node("x"),))


def _sizes(op: Resized) -> dict[str, Literal]:
    return {"target_size_height": op.height, "target_size_width": op.width}


def _scaled(args: MilArgs) -> tuple[int, int]:
    """Height and width by factors, rounded down."""
    x = args.node("x").type
    factors = [args.number(f"scale_factor_{side}", 1.0) for side in ("height", "width")]
    if x.rank < 3 or not all(isfinite(f) and 0 < f < MAX_SIZE for f in factors):
        got = f"{factors} for x {x}"
        raise MilError(args.op, "factors do not fit", got=got, want="two above 0, and rank 3")
    height, width = (floor(n * f) for n, f in zip(x.shape[-2:], factors, strict=True))
    return height, width


def _read_upsample_nearest(args: MilArgs) -> Node:
    return Node(ResizeNearest(*_scaled(args)), (args.node("x"),))


def _read_upsample_bilinear(args: MilArgs) -> Node:
    """Corners and half pixels are two of the five ways to lay places on an axis."""
    size, aligned = _scaled(args), args.flag("align_corners", default=True)
    half = args.flag("half_pixel_centers", default=not aligned)
    if aligned and half:
        raise MilError(args.op, "corners are aligned, or centers are of pixels", got="both")
    mode = "STRICT_ALIGN_CORNERS" if aligned else "UNALIGN_CORNERS" if half else "DEFAULT"
    return Node(ResizeBilinear(*size, mode), (args.node("x"),))


def _read_resize(args: MilArgs) -> Node:
    """`resize` to a constant shape: between two axes of elements, or to the nearest on any."""
    x, written = args.node("x"), args.integers("shape")
    count = args.integer("resized_dims")
    way = args.text("interpolation_mode", "LINEAR")
    mode = args.text("sampling_mode", "DEFAULT")
    rank = x.type.rank
    if not 0 <= count <= len(written) <= rank:
        got = f"{count} of {written} for x {x.type}"
        raise MilError(args.op, "sizes do not fit", got=got, want="some of x's axes")
    if mode not in SAMPLING or way not in ("LINEAR", "NEAREST_NEIGHBOR"):
        raise MilError(args.op, "no such mode", got=f"{way} {mode}", want=list(SAMPLING))
    last = written[len(written) - count :]
    old = x.type.shape[rank - count :]
    sizes = tuple(new or n for new, n in zip(last, old, strict=True))
    if min(sizes, default=1) < 1:
        raise MilError(args.op, "sizes start at 0", got=written)
    if way == "NEAREST_NEIGHBOR":
        for axis, size in enumerate(sizes, rank - count):
            places = spaced(mode, np.array(0), np.array(x.type.shape[axis] - 1), size)
            nearest = np.clip(np.ceil(places - 0.5), 0, x.type.shape[axis] - 1)
            x = Node(Gather(axis), (x, const(nearest, DType.INT32)))
        return x
    if sizes[:-2] != old[:-2]:
        raise MilError(args.op, "only two axes are resized between elements", got=written)
    target = (*x.type.shape[: rank - count], *sizes)
    image = reshape(x, (*(1,) * (3 - rank), *x.type.shape)) if rank < 3 else x
    full = (*(1,) * (3 - rank), *target)
    resized = Node(ResizeBilinear(full[-2], full[-1], mode), (image,))
    return reshape(resized, target) if rank < 3 else resized


Op.readers["upsample_nearest_neighbor"] = _read_upsample_nearest
Op.readers["upsample_bilinear"] = _read_upsample_bilinear
Op.readers["resize"] = _read_resize
