"""Mask constants of fp32 graphs brought into the range of fp16 (ANE141; cases N01, N05).

A constant far below zero among the scores of a softmax, added or chosen by `select`, means "never".
It becomes −1e4, which hides as well and does not overflow.  This changes a value; elsewhere nothing
says that a large constant is a mask, so it stays, and is for the check to report.
"""

from __future__ import annotations

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops import Const, const
from orion_ane.ops.arithmetic import Add, Select
from orion_ane.ops.reduction import Softmax
from orion_ane.ops.shape import Cast, Identity, Reshape, Transpose
from orion_ane.passes.masks import within_fp16
from orion_ane.passes.rewrite import rewrite

FARTHEST = 8
"""How many ops before its softmax a mask is looked for."""


def fit_masks(node: Node) -> Node | None:
    """softmax(… x + (finite constant below fp16)) -> with -1e4 there; alike for a select's side."""
    match node:
        case Node(op=Softmax() as op, args=(scores,)):
            fitted = _fitted(scores, FARTHEST)
            return None if fitted is scores else Node(op, (fitted,))
    return None


def _fitted(scores: Node, depth: int) -> Node:
    """Scores whose masks fit; the very same node where they do."""
    match scores.op:
        case Const() as op if scores.type.dtype.is_float:
            value = op.value
            fitted = within_fp16(value)
            return scores if fitted is value else const(fitted, scores.type.dtype)
        case Add() | Select() | Reshape() | Transpose() | Cast() | Identity() if depth:
            args = tuple(_fitted(arg, depth - 1) for arg in scores.args)
            return scores if args == scores.args else scores.on(args)
    return scores


def constants(graph: Graph, target: Target) -> Graph:
    """The graph whose masks fit fp16."""
    return rewrite(graph, fit_masks) if "ANE141" in target.limits else graph
