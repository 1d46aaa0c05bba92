"""Mask constants of fp32 graphs brought into the range of fp16 (ANE141; cases N01, N05).

A constant far below zero that is added, or chosen by `select`, means "never".  It becomes −1e4,
which hides as well and does not overflow.  The one legaliser that changes a value.
"""

from __future__ import annotations

import numpy as np

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, const
from orion_ane.ops.arithmetic import Add, Select
from orion_ane.passes.masks import MASKED_FP16
from orion_ane.passes.rewrite import rewrite

_LOWEST = float(np.finfo(np.float16).min)


def fit_masks(node: Node) -> Node | None:
    """x + (finite constant below fp16) -> x + (-1e4 there), and alike for a branch of select."""
    if not isinstance(node.op, Add | Select):
        return None
    args = tuple(_fitted(arg) for arg in node.args)
    return None if args == node.args else Node(node.op, args)


def _fitted(node: Node) -> Node:
    if not isinstance(node.op, Const) or not node.type.dtype.is_float:
        return node
    value = node.op.value
    beyond = np.isfinite(value) & (value < _LOWEST)
    return const(np.where(beyond, MASKED_FP16, value), node.type.dtype) if beyond.any() else node


def constants(graph: Graph, target: Target) -> Graph:
    """The graph whose masks fit fp16."""
    return rewrite(graph, fit_masks) if "ANE141" in target.limits else graph
