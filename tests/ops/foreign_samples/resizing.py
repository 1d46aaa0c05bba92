"""Samples of rows that resize images or read them between their elements."""

from __future__ import annotations

from math import inf

from ops.sampling import FLOATS, Row, above, bad, ok

from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.normalization import BatchNorm, InstanceNorm, L2Norm, LocalResponseNorm
from orion_ane.ops.foreign.pooling import AvgPool, L2Pool, MaxPool


def norm(make, vectors: tuple[str, ...], stops=()) -> Row:
    name, eps = make(0.5).name, 2.0**-10
    three = [above(0.25, "T[3]") for _ in vectors]
    return Row(
        FLOATS,
        tuple(
            ok(make(eps), x, *three, stops=stops)
            for x in ("T[2,3,4]", "T[1,3,2,2]", "T[1,3,2,1,3]")
        ),
        (
            bad(make(inf), "fp16[1,3,2]", *["fp16[3]"] * len(vectors), says="eps is not finite"),
            bad(make(0.5), "fp16[1,3]", *["fp16[3]"] * len(vectors), says="rank does not fit"),
            bad(make(0.5), "fp16[1,3,2]", says=f"{name}: wrong number of operands: got 1"),
            bad(
                make(0.5),
                "fp16[1,3,2]",
                *["fp16[4]"] * len(vectors),
                says=f"{name}: {vectors[0]} does not fit: got fp16[4], want fp16[3]",
            ),
        ),
    )


def pool(make) -> Row:
    name = make((1,), (1,), (0, 0)).name
    return Row(
        FLOATS,
        tuple(
            ok(op, x, stops=(0,))
            for op, x in (
                (make((2,), (1,), (0, 0)), "T[1,2,5]"),
                (make((2, 3), (2, 1), (0, 1, 1, 1)), "T[2,1,4,5]"),
                (make((3, 2), (2, 2), (1, 1, 0, 0), True), "T[1,2,6,5]"),
                (make((1, 2, 2), (1, 2, 1), (0, 0, 1, 1, 0, 1)), "T[1,2,2,3,3]"),
            )
        ),
        (
            bad(make((2,), (1,), (0, 0)), "fp16[1,2]", says=f"{name}: rank does not fit"),
            bad(make((2,), (1,), (0, 0)), "int32[1,2,3]", says=f"{name}: element type not"),
            bad(make((0,), (1,), (0, 0)), "fp16[1,2,3]", says=f"{name}: kernel_sizes do not fit"),
            bad(make((2,), (0,), (0, 0)), "fp16[1,2,3]", says=f"{name}: strides do not fit"),
            bad(make((2,), (1,), (0, -1)), "fp16[1,2,3]", says=f"{name}: pad do not fit"),
            bad(make((4,), (1,), (0, 0)), "fp16[1,2,3]", says="the window is larger than x"),
        ),
    )


ROWS: dict[str, Row] = {
    "batch_norm": norm(BatchNorm, ("mean", "variance", "gamma", "beta"), stops=(1, 2, 3, 4)),
    "instance_norm": norm(InstanceNorm, ("gamma", "beta")),
    "l2_norm": Row(
        FLOATS,
        tuple(ok(L2Norm(0.5), x) for x in ("T[2,3,4]", "T[1,3,2,2]", "T[2,1,2,1,3]")),
        (
            bad(L2Norm(0.5), "fp16[2,3]", says="l2_norm: rank too low: got fp16[2,3]"),
            bad(L2Norm(0.1), "fp16[2,3,4]", says="l2_norm: eps is not a value of fp32"),
        ),
    ),
    "local_response_norm": Row(
        FLOATS,
        tuple(
            ok(LocalResponseNorm(size, 0.5, 0.75, 1.0), x, stops=(0,))
            for size, x in ((3, "T[2,5,4]"), (2, "T[1,3,2,2]"), (9, "T[1,3,2,1,3]"))
        ),
        (
            bad(LocalResponseNorm(0, 0.5, 0.75, 1.0), "fp16[1,3,2]", says="no neighbours: got 0"),
            bad(LocalResponseNorm(3, 0.5, 0.75, 1.0), "fp16[1,3]", says="rank too low"),
            bad(LocalResponseNorm(3, 0.5, inf, 1.0), "fp16[1,3,2]", says="beta is not finite"),
        ),
    ),
    "max_pool": pool(MaxPool),
    "l2_pool": pool(L2Pool),
    "avg_pool": Row(
        FLOATS,
        (
            *pool(AvgPool).samples,
            ok(AvgPool((3, 2), (2, 1), (1, 1, 0, 1), False, True), "T[1,2,4,3]", stops=(0,)),
            ok(AvgPool((2,), (2,), (1, 1), True, True), "T[1,2,4]", stops=(0,)),
        ),
        pool(AvgPool).errors,
    ),
    "conv_transpose": Row(
        FLOATS,
        (
            ok(ConvTranspose((2,), (0, 0), (1,)), "T[1,3,4]", "T[3,2,3]", stops=(0, 1)),
            ok(
                ConvTranspose((2, 1), (1, 0, 0, 1), (1, 2), 2, True),
                "T[2,4,3,3]",
                "T[4,2,2,3]",
                "T[4]",
                stops=(0, 1, 2),
            ),
            ok(
                ConvTranspose((1, 2, 2), (0, 0, 1, 1, 0, 0), (1, 1, 1)),
                "T[1,1,2,3,2]",
                "T[1,2,1,2,2]",
                stops=(0, 1),
            ),
            ok(
                ConvTranspose((2,), (1, 0), (1,), 1, False, (1, 2, 11)),
                "T[1,3,4]",
                "T[3,2,3]",
                stops=(0, 1),
            ),
        ),
        (
            bad(
                ConvTranspose((1,), (0, 0), (1,)),
                "fp16[1,3,4]",
                says="wrong number of operands: got 1",
            ),
            bad(
                ConvTranspose((1,), (0, 0), (1,)),
                "fp16[1,3,4]",
                "fp16[2,2,3]",
                says="channels do not",
            ),
            bad(
                ConvTranspose((1,), (0, 0), (1,)),
                "fp16[1,3]",
                "fp16[3,2]",
                says="shapes do not fit",
            ),
            bad(
                ConvTranspose((0,), (0, 0), (1,)),
                "fp16[1,3,4]",
                "fp16[3,2,3]",
                says="strides do not",
            ),
            bad(
                ConvTranspose((1,), (0, 0), (1,), 1, True),
                "fp16[1,3,4]",
                "fp16[3,2,3]",
                "fp16[3]",
                says="conv_transpose: bias does not fit: got fp16[3]",
            ),
            bad(
                ConvTranspose((1,), (0, 0), (1,), 1, False, (1, 3, 6)),
                "fp16[1,3,4]",
                "fp16[3,2,3]",
                says="conv_transpose: output_shape does not fit: got (1, 3, 6)",
            ),
        ),
    ),
}
