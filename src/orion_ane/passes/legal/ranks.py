"""Products of at most four axes (ANE143): leading axes that are alike become one."""

from __future__ import annotations

from math import prod

from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.linear import Matmul
from orion_ane.passes.legal.shaped import shaped
from orion_ane.passes.rewrite import rewrite

MAX_RANK = 4


def merge_batches(node: Node) -> Node | None:
    """A matmul of five axes -> one of four, where two neighbours stretch alike in both operands."""
    if not isinstance(node.op, Matmul) or node.type.rank <= MAX_RANK:
        return None
    x, y = (shaped(v, (1,) * (node.type.rank - v.type.rank) + v.type.shape) for v in node.args)
    for axis in range(node.type.rank - 3):
        pairs = [v.type.shape[axis : axis + 2] for v in (x, y)]
        if pairs[0] == pairs[1] or (1, 1) in pairs:
            merged = (
                shaped(v, (*v.type.shape[:axis], prod(pair), *v.type.shape[axis + 2 :]))
                for v, pair in zip((x, y), pairs, strict=True)
            )
            return shaped(Node(node.op, tuple(merged)), node.type.shape)
    return None


def flatten_rows(node: Node) -> Node | None:
    """A linear layer on five axes -> on two."""
    match node:
        case Node(op=Linear(), args=(x, w, bias)) if x.type.rank > MAX_RANK:
            rows = shaped(x, (prod(x.type.shape[:-1]), x.type.shape[-1]))
            return shaped(Node(node.op, (rows, w, bias)), node.type.shape)
    return None


def ranks(graph: Graph, target: Target) -> Graph:
    """The graph whose products have at most four axes, as far as they can be merged."""
    return rewrite(graph, merge_batches, flatten_rows) if "ANE143" in target.limits else graph
