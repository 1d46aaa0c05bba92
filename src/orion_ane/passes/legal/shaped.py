"""Another shape for a value: a constant or a weight takes it at once, the rest at run time."""

from __future__ import annotations

from dataclasses import replace

from orion_ane.ir import Node
from orion_ane.ops import Const, Weight, reshape
from orion_ane.types import TensorType


def shaped(node: Node, shape: tuple[int, ...]) -> Node:
    """The same elements in another shape; no op where a leaf can be of that shape itself.

    A weight can where only axes of size one come and go (`orion_ane.mil.place`).
    """
    of = node.type.with_shape(shape)
    if of == node.type:
        return node
    if isinstance(node.op, Const):
        return Node(Const(of, node.op.data))
    if isinstance(node.op, Weight) and _sizes(of) == _sizes(node.type):
        return Node(replace(node.op, of=of))
    return reshape(node, shape)


def _sizes(of: TensorType) -> list[int]:
    return [size for size in of.shape if size > 1]
