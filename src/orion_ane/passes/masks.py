"""Mask constants that fp16 cannot hold, on their way into fp16.

The one pass that changes a value: what a mask means is "never", and as -inf it makes a row of
nothing else NaN on a device (cases N01, N05).
"""

from __future__ import annotations

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, const
from orion_ane.ops.shape import Cast
from orion_ane.passes.rewrite import rewrite
from orion_ane.types import DType

MASKED_FP16 = -1e4
"""Far below any score, and still there when a score is added (ane-facts, K9)."""

_SENTINEL = float(np.finfo(np.float16).min)


def fit_mask(node: Node) -> Node | None:
    """cast<fp16>(constant with finite values below fp16) -> the same with fp16's mask value."""
    match node:
        case Node(op=Cast(to=DType.FP16), args=(Node(op=Const() as constant),)):
            value = constant.value
            beyond = np.isfinite(value) & (value < _SENTINEL)
            if beyond.any():
                return const(np.where(beyond, MASKED_FP16, value), DType.FP16)
    return None


def masks(graph: Graph) -> Graph:
    """Constants below fp16's range, cast to it, become a value that hides and does not overflow."""
    return rewrite(graph, fit_mask)
