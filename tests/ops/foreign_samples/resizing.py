"""Samples of rows that resize images or read them between their elements."""

from __future__ import annotations

from ops.sampling import FLOATS, Operand, Row, bad, ok

from orion_ane.ops.foreign.resizing import SAMPLING, ResizeBilinear, ResizeNearest
from orion_ane.ops.foreign.sampling import BOXES, COORDINATES, PADDING, CropResize, Resample


def resized(make) -> tuple:
    name = make(1, 1).name
    return (
        bad(make(2, 2), "fp16[3,4]", says=f"{name}: rank too low: got fp16[3,4], want at least 3"),
        bad(make(0, 2), "fp16[1,3,4]", says=f"{name}: sizes start at 1: got (0, 2)"),
        bad(make(1 << 30, 1 << 30), "fp16[1,3,4]", says=f"{name}: too many elements"),
        bad(make(2, 2), "int32[1,3,4]", says=f"{name}: element type not supported"),
    )


def resample(padding: str, coordinates: str, *, near: bool = False, align: bool = True) -> Resample:
    return Resample("nearest" if near else "bilinear", padding, 0.5, coordinates, align)


CROP = CropResize(2, 3, True, BOXES[0], "ALIGN_CORNERS", 0.25)
AT = Operand("fp32[2,2,3,2]", -3.0, 3.0)

ROWS = {
    "resize_bilinear": Row(
        FLOATS,
        (
            *(ok(ResizeBilinear(4, 5, mode), "T[1,3,2]") for mode in SAMPLING),
            ok(ResizeBilinear(1, 2, "ALIGN_CORNERS"), "T[2,1,4,3]"),
            ok(ResizeBilinear(3, 1, "DEFAULT"), "T[1,2,1,1,3]"),
        ),
        (
            *resized(lambda h, w: ResizeBilinear(h, w, "DEFAULT")),
            bad(ResizeBilinear(2, 2, "NEAR"), "fp16[1,3,4]", says="no such mode: got NEAR"),
        ),
    ),
    "resize_nearest_neighbor": Row(
        FLOATS,
        (
            ok(ResizeNearest(4, 5), "T[1,3,2]"),
            ok(ResizeNearest(1, 2), "T[2,1,4,3]"),
            ok(ResizeNearest(3, 1), "T[1,2,1,1,3]"),
        ),
        resized(ResizeNearest),
    ),
    "resample": Row(
        FLOATS,
        (
            *(ok(resample(way, COORDINATES[0]), "T[2,1,3,2]", AT, stops=(0, 1)) for way in PADDING),
            ok(resample("constant", COORDINATES[1]), "T[2,2,3,3]", AT, stops=(0, 1)),
            ok(
                resample("reflection", COORDINATES[2], near=True, align=False),
                *("T[1,2,1,3]", "int32[1,2,2,2]"),
                stops=(0,),
            ),
        ),
        (
            bad(
                resample("constant", COORDINATES[0]),
                *("fp16[2,1,3,2]", "fp32[1,2,3,2]"),
                says="resample: shapes do not fit: got x fp16[2,1,3,2] and coordinates fp32[1",
            ),
            bad(resample("none", COORDINATES[0]), *("fp16[2]", "fp16[2]"), says="no such mode"),
            bad(resample("border", "polar"), *("fp16[2]", "fp16[2]"), says="no such mode"),
            bad(resample("border", COORDINATES[0]), *("fp16[2]", "bool[2]"), says="element type"),
        ),
    ),
    "crop_resize": Row(
        FLOATS,
        (
            ok(
                CROP,
                *("T[2,1,4,3]", Operand("fp32[3,4]", -0.5, 1.5), Operand("int32[3]", 0.0, 1.0)),
                stops=(0, 1),
            ),
            ok(
                CropResize(1, 2, False, BOXES[3], "OFFSET_CORNERS", 0.0),
                *("T[1,2,3,3]", Operand("uint16[2,4]", 0.0, 2.0), "uint16[2]"),
                stops=(0,),
            ),
            ok(
                CropResize(2, 2, False, BOXES[1], "DEFAULT", 1.0),
                *("T[1,2,3,3]", Operand("fp16[1,4]", 0.0, 2.0), "int32[1]"),
                stops=(0, 1),
            ),
        ),
        (
            bad(
                CROP,
                *("fp16[2,1,4,3]", "fp32[3,4]", "int32[2]"),
                says="crop_resize: shapes do not fit: got x fp16[2,1,4,3], boxes fp32[3,4] and",
            ),
            bad(CROP, *("fp16[2,1,4,3]", "int32[3,4]", "int32[3]"), says="element type not"),
            bad(
                CropResize(2, 2, False, BOXES[1], "UNALIGN_CORNERS", 0.0),
                *("fp16[2,1,4,3]", "fp32[3,4]", "int32[3]"),
                says="crop_resize: no such mode: got UNALIGN_CORNERS",
            ),
            bad(
                CropResize(0, 2, False, BOXES[1], "DEFAULT", 0.0),
                *("fp16[2,1,4,3]", "fp32[3,4]", "int32[3]"),
                says="crop_resize: sizes start at 1",
            ),
        ),
    ),
}
