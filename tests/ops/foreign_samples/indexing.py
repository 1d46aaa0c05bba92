"""Samples of gather and scatter.  Their indices are unsigned: old opsets wrap signed ones."""

from __future__ import annotations

from ops.sampling import ARITHMETIC, FLOATS, Operand, Row, bad, ok

from orion_ane.ops.foreign.indexing import (
    Gather,
    GatherAlongAxis,
    GatherNd,
    Scatter,
    ScatterAlongAxis,
    ScatterNd,
)


def places(shape: str, dtype: str = "uint16", hi: float = 3.0) -> Operand:
    return Operand(f"{dtype}[{shape}]", 0.0, hi)


def scatter(make, small: tuple, large: tuple) -> tuple:
    """Samples of each mode; the gradients of all but add and sub stop."""
    stops = (0, 2)
    return (
        ok(make("add"), *small),
        ok(make("sub"), *large),
        *(ok(make(mode), *small, stops=stops) for mode in ("update", "mul", "max", "min")),
        ok(make("div"), *small[:2], Operand(small[2], 0.5, 2.0), stops=stops),
    )


ROWS = {
    "gather": Row(
        ARITHMETIC,
        (
            ok(Gather(), "T[4]", places("3")),
            ok(Gather(1), "T[2,4,3]", places("2,2", hi=5.0)),
            ok(Gather(-1), "T[2,3]", places("")),
            ok(Gather(0), "T[4,2]", places("3", "uint8")),
            ok(Gather(1, 1), "T[2,3,2]", places("2,3"), stops=(0,)),
            ok(Gather(2, 1), "T[2,1,3,2]", places("2,2", hi=2.0), stops=(0,)),
        ),
        (
            bad(Gather(), "fp16[4]", says="gather: wrong number of operands: got 1, want 2"),
            bad(Gather(2), "fp16[4,2]", "int32[1]", says="gather: no such axis: got 2"),
            bad(Gather(), "fp16[4]", "fp16[1]", says="gather: element type not supported"),
            bad(
                Gather(1, 1),
                "fp16[2,3]",
                "int32[3,3]",
                says="gather: indices do not fit: got indices int32[3,3] for fp16[2,3], "
                "want 1 equal axes before axis 1",
            ),
            bad(Gather(0, 1), "fp16[2,3]", "int32[2,3]", says="gather: indices do not fit"),
            bad(Gather(), "fp16[2,2,2]", "int32[1,1,1,1]", says="gather: rank too high"),
        ),
    ),
    "gather_along_axis": Row(
        ARITHMETIC,
        (
            ok(GatherAlongAxis(), "T[4]", places("3")),
            ok(GatherAlongAxis(1), "T[2,4]", places("2,5", hi=5.0)),
            ok(GatherAlongAxis(-2), "T[2,3,2]", places("2,1,2", "uint8")),
        ),
        (
            bad(
                GatherAlongAxis(),
                "fp16[4,2]",
                "int32[3,3]",
                says="gather_along_axis: indices do not fit: got indices int32[3,3] for fp16[4,2], "
                "want equal sizes but on axis 0",
            ),
            bad(GatherAlongAxis(), "fp16[4]", "int32[1,3]", says="indices do not fit"),
            bad(GatherAlongAxis(), "fp16[]", "int32[]", says="a scalar has no axes"),
        ),
    ),
    "gather_nd": Row(
        ARITHMETIC,
        (
            ok(GatherNd(), "T[3,2]", places("4,2", hi=2.0)),
            ok(GatherNd(), "T[3,2,2]", places("2,2,1")),
            ok(GatherNd(), "T[3,4]", places("2", hi=4.0)),
            ok(GatherNd(1), "T[2,3,2]", places("2,3,1"), stops=(0,)),
            ok(GatherNd(1), "T[2,3,2]", places("2,2", "uint8"), stops=(0,)),
        ),
        (
            bad(
                GatherNd(),
                "fp16[3,2]",
                "int32[4,3]",
                says="gather_nd: indices do not fit: got indices int32[4,3] for fp16[3,2], "
                "want 0 equal axes, then points of at most x's axes",
            ),
            bad(GatherNd(1), "fp16[3,2]", "int32[2,1]", says="gather_nd: indices do not fit"),
            bad(GatherNd(), "fp16[3,2]", "int32[]", says="gather_nd: indices do not fit"),
        ),
    ),
    "scatter": Row(
        FLOATS,
        (
            *scatter(
                Scatter,
                ("T[4]", places("3"), "T[3]"),
                ("T[3,2]", places("2,2", hi=4.0), "T[2,2,2]"),
            ),
            ok(Scatter("add", 1), "T[2,3,2]", places("4"), "T[2,4,2]"),
            ok(Scatter("add", -1), "T[2,3]", places(""), "T[2]"),
            ok(Scatter("sub"), "int32[4]", places("3"), "int32[3]"),
        ),
        (
            bad(
                Scatter("add"),
                "fp16[4]",
                "int32[3]",
                "fp16[2]",
                says="scatter: updates do not fit: got fp16[2], want fp16[3]",
            ),
            bad(Scatter("plus"), *("fp16[4]", "int32[3]", "fp16[3]"), says="no such mode"),
            bad(Scatter(), *("fp16[4]", "int32[3]", "fp32[3]"), says="element types differ"),
            bad(
                Scatter("div"),
                *("int32[4]", "int32[3]", "int32[3]"),
                says="scatter: element type not supported: got int32[4]",
            ),
        ),
    ),
    "scatter_along_axis": Row(
        FLOATS,
        (
            *scatter(
                ScatterAlongAxis,
                ("T[4]", places("3"), "T[3]"),
                ("T[3,2]", places("4,2", hi=4.0), "T[4,2]"),
            ),
            ok(ScatterAlongAxis("add", -1), "T[2,3]", places("2,2"), "T[2,2]"),
        ),
        (
            bad(
                ScatterAlongAxis(),
                *("fp16[4,2]", "int32[3,3]", "fp16[3,3]"),
                says="scatter_along_axis: indices do not fit",
            ),
            bad(ScatterAlongAxis(), *("fp16[4]", "int32[3]", "fp16[4]"), says="updates do not fit"),
        ),
    ),
    "scatter_nd": Row(
        FLOATS,
        scatter(
            ScatterNd,
            ("T[2,3]", places("4,2"), "T[4]"),
            ("T[3,2]", places("2,1", hi=4.0), "T[2,2]"),
        ),
        (
            bad(
                ScatterNd(),
                *("fp16[4,2]", "int32[3,3]", "fp16[3,3]"),
                says="scatter_nd: indices do not fit",
            ),
            bad(ScatterNd(), *("fp16[4]", "int32[3,1]", "fp16[4]"), says="updates do not fit"),
        ),
    ),
}
