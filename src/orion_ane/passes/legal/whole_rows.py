"""Ports whose last axis fills rows of 64 bytes, so that no report of strides matters (A05, A21)."""

from __future__ import annotations

from orion_ane.ane.layout import row_stride
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph
from orion_ane.passes.legal.ports import with_surfaces
from orion_ane.types import TensorType


def whole_rows(graph: Graph, target: Target) -> Graph:
    """The graph with the last axis of each port padded to whole rows."""
    if "ANE132" not in target.limits:
        return graph
    return with_surfaces(graph, whole, whole)


def whole(of: TensorType) -> TensorType:
    """The type with a last axis of whole rows; a scalar gets one axis."""
    return of.with_shape((*of.shape[:-1], row_stride(of) // of.dtype.itemsize))
