"""Fused attention, spelled out where the device ignores its mask or refuses it."""

from __future__ import annotations

from math import sqrt

import numpy as np

from orion_ane.ane.limits.shapes import attention_fits
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.nn.blocks import MASKED
from orion_ane.ops import Const, const, matmul, maximum, select, softmax
from orion_ane.ops.foreign.attention import Attention
from orion_ane.passes.rewrite import Rule, rewrite
from orion_ane.types import DType


def spell_attention(limits: frozenset[str]) -> Rule:
    """A rule: attention that the limits forbid -> two products around a softmax.

    The queries are scaled before the product, so that scores are small.  A row that sees nothing
    sees all alike, where the fused op means zeros: nobody reads it, and it is never NaN (N03).
    """

    def spell(node: Node) -> Node | None:
        if not isinstance(node.op, Attention) or not _is_refused(node, limits):
            return None
        q, k, v, *masks = node.args
        dtype = node.type.dtype
        scores = matmul(q * const(1 / sqrt(q.type.shape[-1]), dtype), k, ty=True)
        for mask in masks:
            scores = hidden(scores, mask)
        return matmul(softmax(scores, scores.type.rank - 1), v)

    return spell


def hidden(scores: Node, mask: Node) -> Node:
    """Scores with a mask: a bool one says what is seen, another is added, no lower than MASKED."""
    least = const(MASKED[scores.type.dtype], scores.type.dtype)
    if mask.type.dtype is DType.BOOL:
        return select(mask, scores, least)
    if isinstance(mask.op, Const):
        return scores + const(np.maximum(mask.op.value, least.op.eval(())), mask.type.dtype)
    return scores + maximum(mask, least)


def _is_refused(node: Node, limits: frozenset[str]) -> bool:
    fits = attention_fits(node.args[0].type, node.args[1].type)
    return (
        "ANE150" in limits
        or ("ANE006" in limits and len(node.args) == 4)
        or ("ANE151" in limits and not fits)
    )


def attention(graph: Graph, target: Target) -> Graph:
    """The graph without the fused attention that the target has not, or not rightly."""
    return rewrite(graph, spell_attention(target.limits))
