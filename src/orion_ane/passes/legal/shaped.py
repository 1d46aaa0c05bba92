"""Another shape for a value: a constant or a weight takes it at once, the rest at run time."""

from __future__ import annotations

from orion_ane.ir import Node
from orion_ane.ops import reshape
from orion_ane.passes.fold import reshaped


def shaped(node: Node, shape: tuple[int, ...]) -> Node:
    """The same elements in another shape; no op where a leaf can be of that shape itself."""
    of = node.type.with_shape(shape)
    return node if of == node.type else reshaped(node, of) or reshape(node, shape)
