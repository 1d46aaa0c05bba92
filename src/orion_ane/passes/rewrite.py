"""The one engine: rules to a settled graph, in one forward walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from orion_ane.errors import OrionError
from orion_ane.ir import Graph, Node
from orion_ane.ops import identity
from orion_ane.ops.leaf import Leaf

Rule: TypeAlias = Callable[[Node], Node | None]
"""A better node for the same value and type, or None.  It looks at a node and what that needs."""

FIRINGS_PER_NODE = 10
"""Rules that fire more often than this are taken to go on for ever."""


def rewrite(graph: Graph, *rules: Rule) -> Graph:
    """The graph in which no rule fires any more, or `graph` itself where none did.

    Operands settle before their users, so a rule sees settled operands only.  Inputs stay, used or
    not, and an output that an op made stays made by an op, since it needs a name of its own.

    Raises:
        OrionError: a rule fires without end or changes a type; it is named.
    """
    walk = _Walk(rules, FIRINGS_PER_NODE * (len(graph.nodes) + FIRINGS_PER_NODE))
    for node in graph.inputs.values():
        walk.settled[node] = node
    for node in graph.nodes:
        walk.settle(node)
    ends = {node: _made_by_an_op(walk, node) for node in graph.outputs.values()}
    if all(new is node for node, new in ends.items()):
        return graph
    return Graph(graph.inputs, {name: ends[node] for name, node in graph.outputs.items()})


def _made_by_an_op(walk: _Walk, node: Node) -> Node:
    """What an output became, unless that is a leaf: then an identity of it."""
    new = walk.settled[node]
    if isinstance(node.op, Leaf) or not isinstance(new.op, Leaf):
        return new
    kept = walk.rebuilt(node)
    passed_on = identity(new)
    return kept if kept.op == passed_on.op and kept.args == passed_on.args else passed_on


class _Walk:
    """What each node met so far has settled to.

    Nodes are keys, not their ids, so that none dies and leaves its id to another.
    """

    def __init__(self, rules: tuple[Rule, ...], budget: int) -> None:
        self.rules, self.budget = rules, budget
        self.settled: dict[Node, Node] = {}

    def settle(self, root: Node) -> None:
        """Settle a node and all that it needs: a loop, since rules may answer with deep trees."""
        stack, better, settled = [root], dict[Node, tuple[Node, Rule]](), self.settled
        while stack:
            node = stack[-1]
            if node in settled:
                stack.pop()
            elif node in better:
                found, rule = better[node]
                if found not in settled:  # it needs this very node
                    raise _endless(rule, node)
                settled[node] = settled[found]
            elif waiting := [arg for arg in node.args if arg not in settled]:
                stack.extend(reversed(waiting))
            else:
                fresh = self.rebuilt(node)
                fired = self.fire(fresh)
                if fired is None:
                    settled[node] = settled[fresh] = fresh
                    stack.pop()
                else:
                    better[node] = fired
                    stack.append(fired[0])

    def rebuilt(self, node: Node) -> Node:
        """The same op on the settled operands."""
        args = tuple([self.settled[arg] for arg in node.args])
        return node if args == node.args else node.on(args)

    def fire(self, node: Node) -> tuple[Node, Rule] | None:
        """What the first rule that fires makes of a node, and which it was."""
        for rule in self.rules:
            found = rule(node)
            if found is None:
                continue
            if found.type != node.type:
                raise OrionError(_named(rule), "changes a type", got=found, want=node.type)
            self.budget -= 1
            if self.budget < 0:
                raise _endless(rule, node)
            return found, rule
        return None


def _endless(rule: Rule, node: Node) -> OrionError:
    return OrionError(_named(rule), "fires without end", got=node)


def _named(rule: Rule) -> str:
    return f"rule {getattr(rule, '__name__', rule)}"
