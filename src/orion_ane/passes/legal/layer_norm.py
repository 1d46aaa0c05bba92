"""Layer norms that are too long for the device, spelled in reductions (ANE192, ANE193)."""

from __future__ import annotations

from orion_ane.ane.limits.shapes import LAYER_NORMS
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.nn.blocks import normalise
from orion_ane.ops import reduce_mean
from orion_ane.ops.foreign.layer_norm import LayerNorm, along
from orion_ane.passes.legal.shaped import shaped
from orion_ane.passes.rewrite import Rule, rewrite


def spell_norm(longest: int) -> Rule:
    """A rule: a layer norm whose last axis has `longest` values or more -> reductions.

    In fp16 the squares are scaled first, and epsilon with them (cases N07, N09).
    """

    def spell(node: Node) -> Node | None:
        op = node.op
        if not isinstance(op, LayerNorm) or node.type.shape[-1] < longest:
            return None
        x, *vectors = node.args
        y = normalise(x - reduce_mean(x, op.axes), op.eps, op.axes)
        shape = along(op.axes, x.type.shape)
        for name, vector in zip(op.vectors, vectors, strict=True):
            placed = shaped(vector, shape)
            y = y * placed if name == "gamma" else y + placed
        return y

    return spell


def layer_norm(graph: Graph, target: Target) -> Graph:
    """The graph without layer norms that the target refuses."""
    lengths = [longest for code, longest in LAYER_NORMS.items() if code in target.limits]
    return rewrite(graph, spell_norm(min(lengths))) if lengths else graph
