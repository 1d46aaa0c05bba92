"""Rows that exist to be imported, run and lowered: importing this package fills `Op.table`."""

from orion_ane.ops.foreign import (
    attention,
    binary,
    conv,
    gates,
    layer_norm,
    linear,
    unary,
)

__all__ = [
    "attention",
    "binary",
    "conv",
    "gates",
    "layer_norm",
    "linear",
    "unary",
]
