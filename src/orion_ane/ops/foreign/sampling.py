"""Images read at places that are known when they run: resample, affine, crop_resize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import Literal, MilArgs, MilCall
from orion_ane.ops.foreign.fill import Tile
from orion_ane.ops.foreign.indexing import INDEX
from orion_ane.ops.foreign.resizing import MAX_SIZE, SAMPLING, spaced
from orion_ane.ops.leaf import const
from orion_ane.ops.linear import matmul
from orion_ane.ops.rules import FLOATS, typed, want_count, want_dtypes, want_held
from orion_ane.ops.shape import cast, reshape, slice_by_index, transpose
from orion_ane.types import Array, DType, TensorType

PADDING = ("constant", "border", "reflection", "symmetric")
COORDINATES = ("unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one")
BOXES = (
    "CORNERS_HEIGHT_FIRST",
    "CORNERS_WIDTH_FIRST",
    "CENTER_SIZE_HEIGHT_FIRST",
    "CENTER_SIZE_WIDTH_FIRST",
)


def between(x: Array, image: Array, rows: Array, columns: Array, outside: float) -> Array:
    """Elements of x's images, weighed from the four around each place; x's edge has `outside`.

    x: [B, C, H, W]; image, rows, columns broadcast to [N, h, w] -> [N, C, h, w].
    """
    total: Array = np.zeros((), x.dtype)
    for row, high in _around(rows, x.shape[2]):
        for column, wide in _around(columns, x.shape[3]):
            inside = (row >= 0) & (row < x.shape[2]) & (column >= 0) & (column < x.shape[3])
            at = (np.clip(row, 0, x.shape[2] - 1), np.clip(column, 0, x.shape[3] - 1))
            value = x[image, :, *at]  # [N, h, w, C]
            value = np.where(inside[..., None], value, np.asarray(outside, x.dtype))
            weight = (high * wide).astype(x.dtype)[..., None]
            total = total + np.where(weight == 0, 0, value * weight)
    return np.moveaxis(total, -1, 1)


def _around(places: Array, size: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The elements on both sides, and their weights; what is far outside is just outside."""
    held = np.clip(np.nan_to_num(places, nan=-2), -2, size + 1)
    low = np.floor(held)
    index = low.astype(np.int64)
    return (index, 1 - (held - low)), (index + 1, held - low)


@dataclass(frozen=True)
class Resample(Op, name="resample"):
    """x at coordinates (x, y): bilinear or nearest, and by `padding_mode` what lies outside.

    x: F[B, C, H, W], coordinates: T[B, h, w, 2] -> F[B, C, h, w].
    No gradient: MIL has no op that adds at places between elements.
    """

    sampling_mode: str
    padding_mode: str
    padding_value: float
    coordinates_mode: str
    align_corners: bool

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 2)
        x, at = args
        want_dtypes(self, x, FLOATS)
        want_dtypes(self, at, (*FLOATS, *INDEX))
        for got, known in (
            (self.sampling_mode, ("bilinear", "nearest")),
            (self.padding_mode, PADDING),
            (self.coordinates_mode, COORDINATES),
        ):
            if got not in known:
                raise ShapeError(self.name, "no such mode", got=got, want=list(known))
        want_held(self, "the padding", self.padding_value, x.dtype)
        if x.rank != 4 or at.rank != 4 or at.shape[3] != 2 or x.shape[0] != at.shape[0]:
            got = f"x {x} and coordinates {at}"
            raise ShapeError(self.name, "shapes do not fit", got=got, want="[B,C,H,W], [B,h,w,2]")
        return typed(self, x.dtype, (*x.shape[:2], *at.shape[1:3]))

    def eval(self, args: Arrays) -> Array:
        x, at = args
        wide = at.astype(np.float64)
        columns, rows = (self._places(wide[..., i], x.shape[3 - i]) for i in (0, 1))
        if self.sampling_mode == "nearest":
            rows, columns = np.rint(rows), np.rint(columns)
        image = np.arange(x.shape[0])[:, None, None]
        return between(x, image, rows, columns, self.padding_value)

    def _places(self, at: Array, size: int) -> Array:
        """Coordinates as places on an axis of `size`, inside it but for a constant padding."""
        if self.coordinates_mode == "normalized_minus_one_to_one":
            at = (at + 1) / 2
        if self.coordinates_mode != "unnormalized":
            at = at * (size - 1) if self.align_corners else at * size - 0.5
        if self.padding_mode == "constant":
            return at
        if self.padding_mode == "reflection":
            at = _mirrored(at, size - 1)
        elif self.padding_mode == "symmetric":
            at = _mirrored(at + 0.5, size) - 0.5
        return np.clip(at, 0, size - 1)

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None

    def mil(self) -> MilCall:
        consts: dict[str, Literal] = {
            "sampling_mode": self.sampling_mode,
            "padding_mode": self.padding_mode,
            "padding_value": float(self.padding_value),
            "coordinates_mode": self.coordinates_mode,
            "align_corners": self.align_corners,
        }
        return MilCall("resample", ("x", "coordinates"), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(
            args.text("sampling_mode"),
            args.text("padding_mode"),
            args.number("padding_value"),
            args.text("coordinates_mode"),
            args.flag("align_corners"),
        )
        return Node(op, (args.node("x"), args.node("coordinates")))


def _mirrored(at: Array, span: int) -> Array:
    """Places folded back between 0 and `span`."""
    folded = np.abs(at) % (2 * span) if span else np.zeros_like(at)
    return np.minimum(folded, 2 * span - folded)


def _read_affine(args: MilArgs) -> Node:
    """`affine`, which resamples at a grid that a matrix has moved; in fp32, as coordinates are."""
    x, matrix = args.node("x"), args.node("transform_matrix")
    height, width = args.integer("output_height"), args.integer("output_width")
    modes = tuple(
        args.text(f"{key}_mode").lower() for key in ("sampling", "padding", "coordinates")
    )
    rest = (args.number("padding_value"), args.flag("align_corners"))
    if modes != ("bilinear", "constant", COORDINATES[1]) or rest != (0.0, True):
        raise MilError(args.op, "no such mode", got=(*modes, *rest), want="MIL's only one")
    many = matrix.type.shape[0] if matrix.type.rank else 0
    if x.type.rank != 4 or matrix.type.shape[1:] != (6,) or many not in (1, x.type.shape[0]):
        got = f"x {x.type} and matrix {matrix.type}"
        raise MilError(args.op, "shapes do not fit", got=got, want="[B,C,H,W] and [B,6] or [1,6]")
    if not (0 < height < MAX_SIZE and 0 < width < MAX_SIZE and height * width < MAX_SIZE):
        raise MilError(args.op, "sizes do not fit", got=(height, width))
    ys, xs = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    grid = np.stack([xs.ravel(), ys.ravel(), np.ones(height * width)])  # [3, h·w]
    moves = reshape(cast(matrix, DType.FP32), (many, 2, 3))
    moved = transpose(matmul(moves, const(grid, DType.FP32)), (0, 2, 1))
    at = reshape(moved, (many, height, width, 2))
    if many != x.type.shape[0]:
        at = Node(Tile((x.type.shape[0], 1, 1, 1)), (at,))
    return Node(Resample("bilinear", "constant", 0.0, COORDINATES[1], align_corners=True), (x, at))


@dataclass(frozen=True)
class CropResize(Op, name="crop_resize"):
    """Boxes of x's images, each resized: what lies outside an image is pad_value.

    x: F[B, C, H, W], boxes: T[N, 4], box_indices: I[N] -> F[N, C, height, width].
    Places on an axis lie as `resize_bilinear` has them, from one side of the box to the other.
    No gradient: MIL has no op that adds at places between elements.
    """

    height: int
    width: int
    normalized: bool
    box_mode: str
    mode: str
    pad_value: float

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3)
        x, boxes, indices = args
        want_dtypes(self, x, FLOATS)
        want_dtypes(self, boxes, (*FLOATS, DType.UINT16))
        want_dtypes(self, indices, INDEX)
        for got, known in ((self.box_mode, BOXES), (self.mode, SAMPLING[:4])):
            if got not in known:
                raise ShapeError(self.name, "no such mode", got=got, want=list(known))
        want_held(self, "the padding", self.pad_value, x.dtype)
        if x.rank != 4 or boxes.shape != (*indices.shape, 4) or indices.rank != 1:
            got = f"x {x}, boxes {boxes} and indices {indices}"
            raise ShapeError(self.name, "shapes do not fit", got=got, want="[B,C,H,W], [N,4], [N]")
        if not (0 < self.height < MAX_SIZE and 0 < self.width < MAX_SIZE):
            raise ShapeError(self.name, "sizes start at 1", got=(self.height, self.width))
        return typed(self, x.dtype, (boxes.shape[0], x.shape[1], self.height, self.width))

    def eval(self, args: Arrays) -> Array:
        x, boxes, indices = args
        a, b, c, d = boxes.astype(np.float64).T
        if self.box_mode.endswith("WIDTH_FIRST"):
            a, b, c, d = b, a, d, c
        if self.box_mode.startswith("CENTER"):
            a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
        places = []
        for first, last, size, count in (
            (a, c, x.shape[2], self.height),
            (b, d, x.shape[3], self.width),
        ):
            scale = size - 1 if self.normalized else 1
            places.append(spaced(self.mode, first * scale, last * scale, count))
        rows, columns = places[0][:, :, None], places[1][:, None, :]
        image = np.clip(indices.astype(np.int64), 0, x.shape[0] - 1)[:, None, None]
        found = between(x, image, rows, columns, self.pad_value)
        inside = (rows >= 0) & (rows <= x.shape[2] - 1) & (columns >= 0)
        inside = (inside & (columns <= x.shape[3] - 1))[:, None]
        return np.where(inside, found, np.asarray(self.pad_value, x.dtype))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return None, None, None

    def mil(self) -> MilCall:
        consts: dict[str, Literal] = {
            "target_height": self.height,
            "target_width": self.width,
            "normalized_coordinates": self.normalized,
            "box_coordinate_mode": self.box_mode,
            "sampling_mode": self.mode,
            "pad_value": float(self.pad_value),
        }
        return MilCall("crop_resize", ("x", "boxes", "box_indices"), consts)

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        op = cls(
            args.integer("target_height", 1),
            args.integer("target_width", 1),
            args.flag("normalized_coordinates", default=False),
            args.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST"),
            args.text("sampling_mode", "DEFAULT"),
            args.number("pad_value", 0.0),
        )
        x, scale = args.node("x"), args.number("spatial_scale", 1.0)
        if "roi" in args:
            return _read_roi(op, x, args.node("roi"), scale)
        boxes, indices = args.node("boxes"), args.maybe("box_indices")
        if indices is None:
            indices = const(np.arange(boxes.type.shape[0] if boxes.type.rank else 1), DType.INT32)
        return Node(op, (x, _rescaled(boxes, scale), indices))


def _rescaled(boxes: Node, scale: float) -> Node:
    return boxes if scale == 1 else cast(boxes, DType.FP32) * const(scale, DType.FP32)


def _read_roi(op: CropResize, x: Node, roi: Node, scale: float) -> Node:
    """Up to iOS16 boxes are of all images, or have an image's number in front."""
    shape = roi.type.shape
    if roi.type.rank != 5 or (shape[1], *shape[3:]) != (1, 1, 1) or shape[2] not in (4, 5):
        raise MilError(op.name, "shapes do not fit", got=f"roi {roi.type}", want="[N,1,4,1,1]")
    many, images = shape[0], x.type.shape[0] if x.type.rank else 1
    boxes = reshape(roi, shape[:1] + shape[2:3])
    if shape[2] == 5:
        indices = cast(reshape(slice_by_index(boxes, (0, 0), (many, 1)), (many,)), DType.INT32)
        boxes, images = slice_by_index(boxes, (0, 1), (many, 5)), 1
    else:
        indices = const(np.tile(np.arange(images), many), DType.INT32)
        if images > 1:
            boxes = Node(Tile((1, images, 1)), (reshape(boxes, (many, 1, 4)),))
            boxes = reshape(boxes, (many * images, 4))
    y = Node(op, (x, _rescaled(boxes, scale), indices))
    return reshape(y, (many, images, *y.type.shape[1:]))


Op.readers["affine"] = _read_affine
