"""Mask constants that fp16 cannot hold, on their way into fp16.

The one pass that changes a value: what a mask means is "never", and as -inf it makes a row of
nothing else NaN on a device (cases N01, N05).
"""

from __future__ import annotations

import numpy as np

from orion_ane.ir import Graph, Node
from orion_ane.nn.blocks import MASKED
from orion_ane.ops import Const, const
from orion_ane.ops.shape import Cast
from orion_ane.passes.rewrite import rewrite
from orion_ane.types import Array, DType

_LOWEST = float(np.finfo(np.float16).min)


def fit_mask(node: Node) -> Node | None:
    """cast<fp16>(constant with finite values below fp16) -> the same with fp16's mask value."""
    match node:
        case Node(op=Cast(to=DType.FP16), args=(Node(op=Const() as constant),)):
            value = constant.value
            fitted = within_fp16(value)
            return None if fitted is value else const(fitted, DType.FP16)
    return None


def within_fp16(mask: Array) -> Array:
    """A mask whose finite values are in fp16's range; the very same array where they are."""
    beyond = np.isfinite(mask) & (mask < _LOWEST)
    return np.where(beyond, MASKED[DType.FP16], mask) if beyond.any() else mask


def masks(graph: Graph) -> Graph:
    """Constants below fp16's range, cast to it, become a value that hides and does not overflow."""
    return rewrite(graph, fit_mask)
