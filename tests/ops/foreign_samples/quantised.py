"""Numbers of few bits."""

from __future__ import annotations

from ops.sampling import FLOATS, Row, above, bad, ok

from orion_ane.ops.foreign.quantization import (
    AffineDequantize,
    BlockwiseShiftScale,
    Dequantize,
    Quantize,
)
from orion_ane.types import DType

INT8, UINT8 = DType.INT8, DType.UINT8
TO_INT8 = Quantize(INT8)
SHIFT = BlockwiseShiftScale(has_offset=True)
ZEROS = above(1.0, "uint8[3]")

ROWS: dict[str, Row] = {
    "quantize": Row(
        FLOATS,
        (
            ok(TO_INT8, "T[2,3]", above(0.25, "T[]"), "int8[]", stops=(0, 1)),
            ok(
                Quantize(UINT8, -1),
                "T[2,3]",
                above(0.25, "T[3]"),
                above(1.0, "uint8[3]"),
                stops=(0, 1),
            ),
            ok(Quantize(INT8, 1), "T[1,2,1,3]", above(0.25, "T[2]"), "int8[2]", stops=(0, 1)),
        ),
        (
            bad(TO_INT8, "fp16[2]", says="quantize: wrong number of operands: got 1, want 3"),
            bad(TO_INT8, "fp16[2]", "fp32[]", "int8[]", says="quantize: element types differ"),
            bad(TO_INT8, "fp16[2]", "fp16[]", "uint8[]", says="not a type to quantise to"),
            bad(TO_INT8, "fp16[2]", "fp16[2]", "int8[2]", says="quantize: do not go together"),
            bad(Quantize(INT8, 0), "fp16[2]", "fp16[3]", "int8[3]", says="scale does not fit"),
            bad(Quantize(INT8, 1), "fp16[2]", "fp16[2]", "int8[2]", says="quantize: no such axis"),
        ),
    ),
    "dequantize": Row(
        FLOATS,
        (
            ok(Dequantize(), "int8[2,3]", "T[]", "int8[]", stops=(1,)),
            ok(
                Dequantize(-1), above(0.0, "uint8[2,3]"), "T[3]", above(0.0, "uint8[3]"), stops=(1,)
            ),
            ok(Dequantize(0), "int8[2,1,3]", "T[2]", "int8[2]", stops=(1,)),
        ),
        (
            bad(Dequantize(), "fp16[2]", "fp16[]", "int8[]", says="element type not supported"),
            bad(
                Dequantize(),
                "int8[2]",
                "fp16[]",
                "uint8[]",
                says="element types differ",
            ),
            bad(Dequantize(0), "int8[2]", "fp16[]", "int8[]", says="do not go together"),
        ),
    ),
    "constexpr_affine_dequantize": Row(
        FLOATS,
        (
            ok(AffineDequantize(0), "int8[2,3]", "T[]", "int8[]", stops=(1,)),
            ok(AffineDequantize(-1), above(0.0, "uint8[2,3]"), "T[3]", "fp32[3]", stops=(1, 2)),
            ok(AffineDequantize(1), "int8[2,2,3]", "T[2]", above(0.0, "uint8[]"), stops=(1,)),
        ),
        (
            bad(
                AffineDequantize(0),
                "fp16[2]",
                "fp16[]",
                "int8[]",
                says="element type not",
            ),
            bad(AffineDequantize(1), "int8[2]", "fp16[]", "int8[]", says="no such axis: got 1"),
            bad(AffineDequantize(0), "int8[2]", "fp16[3]", "int8[]", says="scale does not fit"),
            bad(
                AffineDequantize(0),
                "int8[2]",
                "fp16[]",
                "int8[2,1]",
                says="does not fit",
            ),
        ),
    ),
    "constexpr_blockwise_shift_scale": Row(
        FLOATS,
        (
            ok(BlockwiseShiftScale(), "int8[4,6]", "T[2,3]", stops=(1,)),
            ok(
                SHIFT,
                above(0.0, "uint8[2,4]"),
                "T[2,1]",
                above(0.0, "uint8[2,1]"),
                stops=(1,),
            ),
            ok(SHIFT, "T[4]", "T[2]", "fp32[2]", stops=(0, 1, 2)),
        ),
        (
            bad(BlockwiseShiftScale(), "int8[4]", says="wrong number of operands: got 1, want 2"),
            bad(BlockwiseShiftScale(), "int8[4]", "fp16[3]", says="blocks do not cover data"),
            bad(BlockwiseShiftScale(), "int8[]", "fp16[]", says="blocks do not cover data"),
            bad(
                SHIFT,
                "int8[4]",
                "fp16[2]",
                "int8[1]",
                says="does not fit",
            ),
            bad(SHIFT, "int8[4]", "fp16[2]", "uint8[2]", says="not supported"),
        ),
    ),
}
