"""Casts to the type that is there already, and detours through a type that holds everything."""

from __future__ import annotations

from orion_ane.ir import Graph, Node
from orion_ane.ops.shape import Cast
from orion_ane.passes.rewrite import rewrite
from orion_ane.types import DType

_WIDER: dict[DType, tuple[DType, ...]] = {
    DType.BOOL: tuple(DType),
    DType.INT8: (DType.INT16, DType.INT32, DType.FP16, DType.FP32),
    DType.UINT8: (
        DType.INT16,
        DType.UINT16,
        DType.INT32,
        DType.UINT32,
        DType.FP16,
        DType.FP32,
    ),
    DType.INT16: (DType.INT32, DType.FP32),
    DType.UINT16: (DType.INT32, DType.UINT32, DType.FP32),
    DType.FP16: (DType.FP32,),
}


def is_exact(of: DType, to: DType) -> bool:
    """Whether `to` holds every value of the type `of`."""
    return of is to or to in _WIDER.get(of, ())


def drop_cast(node: Node) -> Node | None:
    """cast<t>(x) -> x, where x has the type t."""
    match node:
        case Node(op=Cast(), args=(x,)) if x.type == node.type:
            return x
    return None


def fuse_casts(node: Node) -> Node | None:
    """cast<t>(cast<m>(x)) -> cast<t>(x), where the detour through m loses nothing.

    Not where integers pass through floats into a type too small for them: integers wrap, floats
    do not.
    """
    match node:
        case Node(op=Cast(to=t), args=(Node(op=Cast(to=m), args=(x,)),)):
            of = x.type.dtype
            wraps_alike = of.is_float == m.is_float or t.is_float or is_exact(of, t)
            if is_exact(of, m) and wraps_alike:
                return Node(node.op, (x,))
    return None


def casts(graph: Graph) -> Graph:
    """The graph without casts that change nothing."""
    return rewrite(graph, drop_cast, fuse_casts)
