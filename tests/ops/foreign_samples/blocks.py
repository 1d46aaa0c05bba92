"""Samples of what converters write as one op: gates, norms, linear layers, attention."""

from __future__ import annotations

from math import inf

from ops.sampling import ARITHMETIC, FLOATS, Row, bad, curve, ok

from orion_ane.ops.foreign.attention import Attention
from orion_ane.ops.foreign.gates import EXACT, GELU_MODES, Gelu, Silu
from orion_ane.ops.foreign.layer_norm import LayerNorm
from orion_ane.ops.foreign.linear import Linear

EPS = 2.0**-10

ROWS: dict[str, Row] = {
    "gelu": Row(
        FLOATS,
        tuple(
            ok(Gelu(mode), shape, stops=(0,))
            for mode in GELU_MODES
            for shape in ("T[3]", "T[]", "T[1,4,1,2]")
        ),
        (
            bad(Gelu(EXACT), "int32[2]", says="gelu: element type not supported: got int32[2]"),
            bad(Gelu("TANH"), "fp16[2]", says="gelu: no such mode: got TANH, want EXACT, TANH_"),
        ),
    ),
    "silu": curve(Silu()),
    "layer_norm": Row(
        FLOATS,
        (
            ok(LayerNorm((-1,), EPS), "T[2,4]", stops=(0,)),
            ok(LayerNorm((1,), EPS, True), "T[1,4,1,2]", "T[4]", stops=(0, 1)),
            ok(LayerNorm((1, 2), EPS, True, True), "T[2,3,4]", "T[3,4]", "T[3,4]", stops=(0, 1, 2)),
            ok(LayerNorm((2, 0), EPS, True, True), "T[2,3,4]", "T[2,4]", "T[2,4]", stops=(0, 1, 2)),
            ok(LayerNorm((0,), EPS), "T[5]", stops=(0,)),
        ),
        (
            bad(LayerNorm((), EPS), "fp16[2]", says="layer_norm: no axes"),
            bad(LayerNorm((1,), EPS), "fp16[2]", says="layer_norm: no such axis: got 1"),
            bad(LayerNorm((0,), inf), "fp16[2]", says="layer_norm: eps is not finite: got inf"),
            bad(LayerNorm((0,), 1e-5), "fp16[2]", says="layer_norm: eps is not a value of fp32"),
            bad(
                LayerNorm((0,), EPS, True),
                "fp16[2]",
                "fp16[3]",
                says="layer_norm: gamma does not fit: got fp16[3], want fp16[2]",
            ),
            bad(
                LayerNorm((0,), EPS, False, True),
                "fp16[2]",
                "fp32[2]",
                says="layer_norm: element types differ",
            ),
            bad(LayerNorm((0,), EPS, True), "fp16[2]", says="layer_norm: wrong number of operands"),
        ),
    ),
    "linear": Row(
        ARITHMETIC,
        (
            ok(Linear(), "T[2,3]", "T[4,3]", "T[4]", stops=(1,)),
            ok(Linear(), "T[2,1,3]", "T[2,3]", "T[2]", stops=(1,)),
            ok(Linear(), "T[3]", "T[2,3]", "T[2]", stops=(1,)),
            ok(Linear(), "T[1,2,1,2,3]", "T[1,3]", "T[1]", stops=(1,)),
        ),
        (
            bad(Linear(), "fp16[3]", says="linear: wrong number of operands: got 1, want 3"),
            bad(Linear(), "fp16[]", "fp16[1,1]", "fp16[1]", says="linear: shapes do not fit"),
            bad(
                Linear(),
                "fp16[2,3]",
                "fp16[3,2]",
                "fp16[3]",
                says="linear: shapes do not fit: got x fp16[2,3] and w fp16[3,2], want [...,I] and",
            ),
            bad(Linear(), "fp16[3]", "fp16[2,3]", "fp16[3]", says="linear: bias does not fit"),
            bad(Linear(), "fp16[3]", "fp32[2,3]", "fp16[2]", says="linear: element types differ"),
            bad(Linear(), "fp16[3]", "fp16[2,3]", "fp32[2]", says="linear: element types differ"),
            bad(Linear(), *["bool[3]"] * 3, says="linear: element type not supported"),
        ),
    ),
    "scaled_dot_product_attention": Row(
        FLOATS,
        (
            ok(Attention(), "T[1,2,3]", "T[1,4,3]", "T[1,4,2]", stops=(0, 1, 2)),
            ok(
                Attention(True),
                "T[2,2,2,3]",
                "T[2,2,4,3]",
                "T[2,2,4,5]",
                "T[1,1,2,4]",
                stops=(0, 1, 2, 3),
            ),
            ok(Attention(True), "T[2,2,3]", "T[2,4,3]", "T[2,4,3]", "bool[4]", stops=(0, 1, 2)),
            ok(Attention(), "T[1,1,1,1,1]", "T[1,1,1,1,1]", "T[1,1,1,1,2]", stops=(0, 1, 2)),
        ),
        (
            bad(Attention(), "fp16[2,3]", "fp16[2,3]", "fp16[2,3]", says="shapes do not fit"),
            bad(
                Attention(),
                "fp16[1,2,3]",
                "fp16[1,4,2]",
                "fp16[1,4,2]",
                says="attention: shapes do not fit: got fp16[1,2,3], fp16[1,4,2] and",
            ),
            bad(
                Attention(),
                "fp16[2,2,3]",
                "fp16[1,4,3]",
                "fp16[1,4,2]",
                says="shapes do not fit",
            ),
            bad(
                Attention(True),
                "fp16[1,2,3]",
                "fp16[1,4,3]",
                "fp16[1,4,3]",
                "fp16[3,2,4]",
                says="mask does not fit: got fp16[3,2,4], want as fp16[1,2,4]",
            ),
            bad(
                Attention(True),
                "fp16[1,2,3]",
                "fp16[1,4,3]",
                "fp16[1,4,3]",
                "fp32[4]",
                says="element type not supported: got fp32[4], want bool or fp16",
            ),
            bad(Attention(), "fp16[1,2,3]", "fp32[1,4,3]", "fp16[1,4,3]", says="types differ"),
        ),
    ),
}
