"""Samples of convolutions."""

from __future__ import annotations

from ops.sampling import FLOATS, Row, bad, ok

from orion_ane.ops.foreign.conv import Conv


def plane(**changed) -> Conv:
    walk = {"strides": (1, 1), "pad": (0,) * 4, "dilations": (1, 1)}
    return Conv(**{**walk, **changed})


ROWS: dict[str, Row] = {
    "conv": Row(
        FLOATS,
        (
            ok(plane(), "T[1,2,4,5]", "T[3,2,2,3]", stops=(0, 1)),
            ok(plane(has_bias=True), "T[1,2,1,4]", "T[3,2,1,1]", "T[3]", stops=(0, 1, 2)),
            ok(plane(strides=(2, 1), pad=(1, 0, 0, 2)), "T[2,2,3,3]", "T[2,2,2,2]", stops=(0, 1)),
            ok(plane(groups=2), "T[1,4,1,3]", "T[6,2,1,1]", stops=(0, 1)),
            ok(plane(dilations=(2, 3)), "T[1,1,5,7]", "T[1,1,2,3]", stops=(0, 1)),
            ok(Conv((2,), (1, 1), (1,)), "T[1,2,5]", "T[3,2,3]", stops=(0, 1)),
            ok(
                Conv((1, 2, 1), (0, 1, 1, 0, 0, 0), (1, 1, 2), 2, True),
                "T[1,2,2,3,4]",
                "T[2,1,2,2,2]",
                "T[2]",
                stops=(0, 1, 2),
            ),
        ),
        (
            bad(plane(), "fp16[1,2,4,5]", says="conv: wrong number of operands: got 1, want 2"),
            bad(plane(), "fp16[1,2,3]", "fp16[1,2,1,1]", says="conv: shapes do not fit"),
            bad(plane(), "fp16[1,2]", "fp16[1,2]", says="want 1 to 3 spatial axes"),
            bad(plane(), "fp16[1,3,4,5]", "fp16[3,2,2,2]", says="conv: channels do not fit"),
            bad(plane(groups=0), "fp16[1,2,4,5]", "fp16[3,2,2,2]", says="channels do not fit"),
            bad(plane(groups=2), "fp16[1,4,4,5]", "fp16[3,2,2,2]", says="channels do not fit"),
            bad(plane(strides=(0, 1)), "fp16[1,2,4,5]", "fp16[3,2,2,2]", says="strides do not fit"),
            bad(plane(pad=(0, 0)), "fp16[1,2,4,5]", "fp16[3,2,2,2]", says="pad do not fit"),
            bad(plane(), "fp16[1,2,1,5]", "fp16[3,2,2,2]", says="the kernel is larger than x"),
            bad(plane(), "fp16[1,2,1,5]", "fp16[3,2,1,1]", says="by points"),
            bad(
                plane(has_bias=True),
                "fp16[1,2,1,5]",
                "fp16[3,2,1,1]",
                "fp16[3,1]",
                says="conv: bias does not fit: got fp16[3,1], want fp16[3]",
            ),
            bad(plane(), "fp16[1,2,4,5]", "fp32[3,2,2,2]", says="element types differ"),
            bad(plane(), "int32[1,2,4,5]", "int32[3,2,2,2]", says="element type not supported"),
        ),
    ),
}
