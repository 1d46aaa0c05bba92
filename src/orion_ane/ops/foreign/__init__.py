"""Rows that exist to be imported, run and lowered: importing this package fills `Op.table`."""

from orion_ane.ops.foreign import (
    attention,
    binary,
    conv,
    fill,
    gates,
    indexing,
    layer_norm,
    layout,
    linear,
    order,
    resizing,
    running,
    sampling,
    slices,
    unary,
)

__all__ = [
    "attention",
    "binary",
    "conv",
    "fill",
    "gates",
    "indexing",
    "layer_norm",
    "layout",
    "linear",
    "order",
    "resizing",
    "running",
    "sampling",
    "slices",
    "unary",
]
