"""Samples of rows that copy, order or accumulate elements."""

from __future__ import annotations

from ops.sampling import ANY, ARITHMETIC, FLOATS, Operand, Row, bad, ok

from orion_ane.ops.foreign.fill import OneHot, Tile
from orion_ane.ops.foreign.order import Argsort, ReverseSequence, TopkIndices, TopkValues
from orion_ane.ops.foreign.running import BandPart, Border, Cumsum
from orion_ane.ops.foreign.slices import SliceBySize, SliceUpdate, StridedSlice
from orion_ane.types import DType


def top(make, *, stops: tuple[int, ...] = ()) -> Row:
    name = make(1, 0, False).name
    return Row(
        ARITHMETIC,
        (
            ok(make(2, -1, False), "T[2,3]", stops=stops),
            ok(make(1, 0, True), "T[4,2]", stops=stops),
            ok(make(3, 1, True), "T[1,3,1,2]", stops=stops),
            ok(make(2, 0, False, DType.UINT16), "T[4]", stops=stops),
        ),
        (
            bad(
                make(4, 0, False),
                "fp16[3]",
                says=f"{name}: k does not fit: got 4 on axis 0 of x fp16[3], want 1 to 3",
            ),
            bad(make(1, 1, False), "fp16[3]", says=f"{name}: no such axis: got 1"),
            bad(make(1, 0, False), "bool[3]", says=f"{name}: element type not supported"),
            bad(make(1, 0, False, DType.FP16), "fp16[3]", says=f"{name}: no such type of indices"),
        ),
    )


NO = (False, False)
PLACE = Operand("int32[2]", 0.0, 2.0)

ROWS = {
    "tile": Row(
        ANY,
        (
            ok(Tile((2,)), "T[3]"),
            ok(Tile((2, 3)), "T[2,1]"),
            ok(Tile((1, 1, 2, 3)), "T[1,2,2,1]"),
            ok(Tile((1, 2, 1, 1, 2)), "T[2,1,1,2,1]"),
        ),
        (
            bad(
                Tile((2,)),
                "fp16[2,3]",
                says="tile: repeats do not fit: got (2,) of x fp16[2,3], want one from 1 for each",
            ),
            bad(Tile((0, 1)), "fp16[2,3]", says="tile: repeats do not fit"),
            bad(Tile(()), "fp16[]", says="tile: repeats do not fit"),
            bad(Tile((1 << 62,)), "fp16[2]", says="tile: too many elements"),
        ),
    ),
    "one_hot": Row(
        ANY,
        (
            ok(OneHot(3, -1), Operand("int32[4]", -1.0, 3.0), "T[]", "T[]", stops=(1, 2)),
            ok(OneHot(2, 0), Operand("int32[]", 0.0, 1.0), "T[]", "T[]", stops=(1, 2)),
            ok(OneHot(3, 1), Operand("uint8[2,2]", 0.0, 2.0), "T[]", "T[]", stops=(1, 2)),
        ),
        (
            bad(OneHot(3, 0), "int32[2]", says="one_hot: wrong number of operands: got 1, want 3"),
            bad(OneHot(3, 0), *("fp16[2]", "fp16[]", "fp16[]"), says="element type not supported"),
            bad(OneHot(3, 0), *("int32[2]", "fp16[]", "fp32[]"), says="not two scalars"),
            bad(OneHot(3, 2), *("int32[2]", "fp16[]", "fp16[]"), says="no such axis or size"),
            bad(OneHot(0, 1), *("int32[2]", "fp16[]", "fp16[]"), says="no such axis or size"),
        ),
    ),
    "topk_values": top(TopkValues),
    "topk_indices": top(TopkIndices),
    "argsort": Row(
        ARITHMETIC,
        (
            ok(Argsort(0, False), "T[5]"),
            ok(Argsort(-1, True), "T[2,4]"),
            ok(Argsort(1, False), "T[2,3,2]"),
        ),
        (
            bad(Argsort(1, True), "fp16[3]", says="argsort: no such axis: got 1"),
            bad(Argsort(0, True), "fp16[]", says="argsort: a scalar has no axes"),
        ),
    ),
    "reverse_sequence": Row(
        ANY,
        (
            ok(ReverseSequence(1, 0), "T[2,4]", Operand("int32[2]", 0.0, 4.0)),
            ok(ReverseSequence(0, -1), "T[3,2,2]", Operand("int32[2]", 0.0, 3.0)),
            ok(ReverseSequence(1, 2), "T[1,3,2]", Operand("int8[2]", 0.0, 5.0)),
        ),
        (
            bad(
                ReverseSequence(1, 0),
                *("fp16[2,4]", "int32[4]"),
                says="reverse_sequence: lengths do not fit: got lengths int32[4] for x fp16[2,4], "
                "want one on axis 0",
            ),
            bad(ReverseSequence(1, 0), *("fp16[2,4]", "fp16[2]"), says="element type not"),
            bad(ReverseSequence(1, 1), *("fp16[2,4]", "int32[4]"), says="an axis is given twice"),
            bad(ReverseSequence(2, 0), *("fp16[2,4]", "int32[2]"), says="no such axis: got 2"),
        ),
    ),
    "cumsum": Row(
        ARITHMETIC,
        (
            ok(Cumsum(0, False, False), "T[4]"),
            ok(Cumsum(-1, True, False), "T[2,3]"),
            ok(Cumsum(1, False, True), "T[1,3,2]"),
            ok(Cumsum(0, True, True), "T[3,1,2]"),
        ),
        (
            bad(Cumsum(2, False, False), "fp16[2]", says="cumsum: no such axis: got 2"),
            bad(Cumsum(0, False, False), "bool[2]", says="cumsum: element type not supported"),
        ),
    ),
    "band_part": Row(
        ANY,
        (
            ok(BandPart(-1, 0), "T[3,4]"),
            ok(BandPart(1, 1), "T[4,3]"),
            ok(BandPart(0, -1), "T[2,1,3,3]"),
        ),
        (
            bad(BandPart(0, 0), "fp16[4]", says="band_part: rank too low: got fp16[4]"),
            bad(BandPart(1 << 40, 0), "fp16[4,4]", says="more diagonals than a tensor has"),
        ),
    ),
    "border": Row(
        FLOATS,
        (
            ok(Border((1, 0), (0, 2), "constant", 0.5), "T[2,3]"),
            ok(Border((0, 0, 1), (1, 0, 0), "constant", -4.0), "T[1,2,2]"),
            ok(Border((1, 2), (0, 2), "reflect"), "T[2,3]", stops=(0,)),
            ok(Border((0, 3), (1, 1), "replicate"), "T[1,2]", stops=(0,)),
            ok(Border((), (), "replicate"), "T[]", stops=(0,)),
        ),
        (
            bad(
                Border((-1,), (0,), "replicate"),
                "fp16[2]",
                says="border: amounts do not fit: got (-1,) and (0,) for x fp16[2]",
            ),
            bad(Border((2,), (0,), "reflect"), "fp16[2]", says="want less than is mirrored"),
            bad(Border((2,), (0,), "wrap"), "fp16[2]", says="border: no such mode: got wrap"),
            bad(Border((2,), (0,), "constant", 0.0), "fp16[2]", says="no value for this mode"),
            bad(Border((2,), (0,), "reflect", 1.0), "fp16[3]", says="no value for this mode"),
            bad(Border((2,), (0,), "constant", 0.1), "fp16[3]", says="not a value of fp16"),
            bad(Border((2,), (0,), "constant", 1.0), "int32[3]", says="element type not"),
        ),
    ),
    "strided_slice": Row(
        ANY,
        (
            ok(StridedSlice((0,), (2,), (2,)), "T[4]"),
            ok(StridedSlice((1, 0), (1, 2), (1, 2)), "T[2,3]"),
            ok(StridedSlice((3, 1), (4, 2), (-1, -1)), "T[4,3]"),
            ok(StridedSlice((0, 3, 0), (2, 2, 1), (1, -2, 1)), "T[2,4,1]"),
        ),
        (
            bad(
                StridedSlice((0,), (3,), (2,)),
                "fp16[4]",
                says="strided_slice: walks do not fit: got (3,) from (0,) by (2,) of x fp16[4]",
            ),
            bad(StridedSlice((0,), (2,), (1,)), "fp16[4]", says="strided_slice: not a stride"),
            bad(StridedSlice((0,), (1,), (2,)), "fp16[4]", says="strided_slice: not a stride"),
            bad(StridedSlice((), (), ()), "fp16[4]", says="strided_slice: walks do not fit"),
        ),
    ),
    "slice_by_size": Row(
        ANY,
        (
            ok(SliceBySize((2,)), "T[4]", Operand("int32[1]", 0.0, 2.9), stops=(0,)),
            ok(SliceBySize((1, 2)), "T[3,3]", Operand("int32[2]", 0.0, 1.9), stops=(0,)),
            ok(SliceBySize((1, 1, 2)), "T[2,2,3]", Operand("int32[3]", 0.0, 1.9), stops=(0,)),
        ),
        (
            bad(SliceBySize((2,)), "fp16[4]", says="slice_by_size: wrong number of operands"),
            bad(SliceBySize((2,)), *("fp16[4]", "int32[2]"), says="one for each axis"),
            bad(SliceBySize((5,)), *("fp16[4]", "int32[1]"), says="size does not fit: got (5,)"),
            bad(SliceBySize((2,)), *("fp16[4]", "fp16[1]"), says="element type not supported"),
        ),
    ),
    "slice_update": Row(
        ANY,
        (
            ok(SliceUpdate((1, 1), NO, NO, NO), "T[3,4]", "T[1,2]", PLACE, PLACE, stops=(1,)),
            ok(SliceUpdate((1, 2), NO, NO, NO), "T[3,4]", "T[2,2]", PLACE, PLACE, stops=(1,)),
            ok(
                SliceUpdate((-1, 1), (True, False), NO, (False, True)),
                *("T[3,4]", "T[2]", PLACE, PLACE),
                stops=(1,),
            ),
        ),
        (
            bad(
                SliceUpdate((1, 1), NO, NO, NO),
                *("fp16[3,4]", "fp16[2]", "int32[2]", "int32[2]"),
                says="slice_update: update does not fit: got fp16[2] in x fp16[3,4]",
            ),
            bad(
                SliceUpdate((1, 3), NO, NO, NO),
                *("fp16[3,4]", "fp16[1,3]", "int32[2]", "int32[2]"),
                says="update does not fit: got fp16[1,3] by (1, 3) in x fp16[3,4]",
            ),
            bad(
                SliceUpdate((1,), NO, NO, NO),
                *("fp16[3,4]", "fp16[1,3]", "int32[2]", "int32[2]"),
                says="strides or masks do not fit",
            ),
            bad(
                SliceUpdate((1, 1), NO, NO, NO),
                *("fp16[3,4]", "fp16[1,3]", "int32[3]", "int32[2]"),
                says="slice_update: one for each axis",
            ),
            bad(
                SliceUpdate((1, 1), NO, NO, NO),
                *("fp16[3,4]", "fp32[1,3]", "int32[2]", "int32[2]"),
                says="slice_update: element types differ",
            ),
        ),
    ),
}
