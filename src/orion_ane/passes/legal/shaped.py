"""What legalisers make of a value on the way: another shape, or a power of it."""

from __future__ import annotations

from orion_ane.ir import Node
from orion_ane.ops import const, power, reshape
from orion_ane.passes.fold import reshaped


def shaped(node: Node, shape: tuple[int, ...]) -> Node:
    """The same elements in another shape; no op where a leaf can be of that shape itself."""
    of = node.type.with_shape(shape)
    return node if of == node.type else reshaped(node, of) or reshape(node, shape)


def shifted_power(x: Node, eps: float, exponent: float) -> Node:
    """(x + eps) to a power, where eps is rounded to x's type and left out if that is zero."""
    shift = const(eps, x.type.dtype)
    return power(x + shift if shift.op.eval(()).any() else x, exponent)
