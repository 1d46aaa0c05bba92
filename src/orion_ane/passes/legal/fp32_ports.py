"""Ports of types that a device refuses: fp16 outside, a cast inside.

The user goes on to feed and get the type that was asked for.  What fp16 does not hold is rounded;
integers that it does not hold stay as they are, since no rounding of an index is right.
"""

from __future__ import annotations

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph
from orion_ane.passes.legal.ports import with_surfaces
from orion_ane.types import DType, TensorType

FP32_REFUSED = frozenset({"ANE104", "ANE154"})
BOOL_REFUSED = frozenset({"ANE153", "ANE154"})


def fp32_ports(graph: Graph, target: Target) -> Graph:
    """The graph whose fp32 and bool ports are fp16."""
    refused = set()
    if FP32_REFUSED & target.limits:
        refused.add(DType.FP32)
    if BOOL_REFUSED & target.limits:
        refused.add(DType.BOOL)

    def surface(of: TensorType) -> TensorType:
        return of.with_dtype(DType.FP16) if of.dtype in refused else of

    return with_surfaces(graph, surface, surface)
