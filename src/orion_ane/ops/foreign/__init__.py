"""Rows that exist to be imported, run and lowered: importing this package fills `Op.table`."""

from orion_ane.ops.foreign import attention, conv, gates, layer_norm, linear

__all__ = ["attention", "conv", "gates", "layer_norm", "linear"]
