"""Equal op on equal operands, computed once."""

from __future__ import annotations

from dataclasses import replace

from orion_ane.ir import Graph, Node, Op
from orion_ane.ops import Weight
from orion_ane.passes.rewrite import Rule, rewrite


def merge_equal() -> Rule:
    """A fresh rule: a node -> the first one met with the same op and operands.

    Constants are equal by their bytes, weights by their place in a file, else by their label;
    inputs never, since two with one label are two ports.
    """
    first: dict[tuple[Op, tuple[Node, ...]], Node] = {}

    def merge(node: Node) -> Node | None:
        op = node.op
        if isinstance(op, Weight) and op.at is not None:
            op = replace(op, label="")
        found = first.setdefault((op, node.args), node)
        return None if found is node else found

    return merge


def cse(graph: Graph) -> Graph:
    """The graph in which no value is computed twice."""
    return rewrite(graph, merge_equal())
