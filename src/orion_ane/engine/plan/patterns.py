"""Groups of ops that one command computes: one token's attention, rotary positions, norms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node, Op
from orion_ane.ops.arithmetic import Add, Maximum, Mul, RealDiv, Sub
from orion_ane.ops.curve import Exp, Neg, Rsqrt
from orion_ane.ops.leaf import Input, const
from orion_ane.ops.linear import Matmul
from orion_ane.ops.reduction import ReduceMax, ReduceMean, ReduceSum
from orion_ane.ops.shape import Concat, Reshape, Slice
from orion_ane.types import DType

AXES = 4  # groups of queries, heads, channels of a head, lanes
_CHANNELS, _SCORES = (1,), (3,)  # what is reduced


@dataclass(frozen=True)
class Attention:
    """One token's attention to itself and to a cache; see `nn.blocks.attention`.

    q [G,K,D,1], k and v [1,K,D,1], cached [1,K,D,T], masks of as many elements as there are scores
    of a head.
    """

    q: Node
    k: Node
    v: Node
    mask: Node
    cached_k: Node
    cached_v: Node
    cached_mask: Node

    @property
    def caches(self) -> tuple[tuple[Node, Node | None], ...]:
        """Keys and values, each with the input of which it is another shape, if it is."""
        return tuple((cached, _port(cached)) for cached in (self.cached_k, self.cached_v))


@dataclass(frozen=True)
class Rotation:
    """x cos + (-high, low) sin, x [..,D,S]; see `nn.blocks.rotate`."""

    x: Node
    cos: Node
    sin: Node


@dataclass(frozen=True)
class Norm:
    """x over the root of the mean of its squares along axis 1, and eps; see `nn.blocks.normalise`.

    Attributes:
        x: [N,C,H,W].
        eps: added to the mean.
        is_centred: whether the mean of x is taken away first.
        floor, root: where x is scaled first: the least that it is divided by, and what is divided
            by the same, squared and added to the mean.
    """

    x: Node
    eps: float
    is_centred: bool
    floor: Node | None = None
    root: Node | None = None


Pattern: TypeAlias = Attention | Rotation | Norm
Found: TypeAlias = "tuple[Pattern, list[Node]]"
"""A group and the nodes within, each as often as the group reads it."""


class Patterns:
    """The groups of a graph.

    Attributes:
        ends: the group by the node that its command computes.
        within: the nodes that no command computes, since nothing else reads them.
        turned: the inputs that are caches of keys or values, which are kept position by position.
    """

    def __init__(self, graph: Graph) -> None:
        uses = Counter(arg for node in graph.nodes for arg in node.args)
        uses.update(graph.outputs.values())
        self.ends: dict[Node, Pattern] = {}
        self.within: set[Node] = set()
        self.turned: set[Node] = set()
        for node in graph.nodes:
            for found, within in _found(node):
                if any(uses[inner] != count for inner, count in Counter(within).items()):
                    continue
                self.ends[node] = found
                self.within.update(within)
                if isinstance(found, Attention):
                    self.turned.update(port for _, port in found.caches if port is not None)
                break


def _found(end: Node) -> Iterator[Found]:
    """The groups that may end here, the larger ones first."""
    for found in (_attention(end), _rotation(end)):
        if found is not None:
            yield found
    yield from _norms(end)


def _attention(end: Node) -> Found | None:
    """The attention that ends here."""
    mixed, divisor = _args(end, RealDiv, 2)
    total = _arg(divisor, Reshape) if isinstance(divisor.op, Reshape) else divisor
    old_sum, new_sum = _args(total, Add, 2)
    old_mix, new_mix = _args(mixed, Add, 2)
    cached_v, old = _args(old_mix, Matmul, 2)
    v, new = _args(new_mix, Matmul, 2)
    old_scores, top = _args(_arg(old, Exp), Sub, 2)
    new_scores, same_top = _args(_arg(new, Exp), Sub, 2)
    old_top, new_top = _args(top, Maximum, 2)
    old_product, cached_mask = _args(old_scores, Add, 2)
    new_product, mask = _args(new_scores, Add, 2)
    q, cached_k = _args(old_product, Matmul, 2)
    same_q, k = _args(new_product, Matmul, 2)
    folds: list[tuple[Node, type[Op], Node]] = [
        (old_sum, ReduceSum, old),
        (new_sum, ReduceSum, new),
    ]
    folds += [(old_top, ReduceMax, old_scores), (new_top, ReduceMax, new_scores)]
    is_one = (
        q is same_q
        and top is same_top
        and all(_arg(x, op) is of and x.op == op(_SCORES) for x, op, of in folds)  # type: ignore[call-arg]  # a Reduction
    )
    found = Attention(q, k, v, mask, cached_k, cached_v, cached_mask)
    is_whole = NOTHING not in (*vars(found).values(), top)
    if not is_whole or not is_one or not _fits(found, end, divisor):
        return None
    products = [(old_product, True, False), (new_product, True, False)]
    products += [(old_mix, False, True), (new_mix, False, True)]
    if any((p.op.tx, p.op.ty) != (tx, ty) for p, tx, ty in products):  # type: ignore[attr-defined]  # a Matmul
        return None
    inner = [mixed, total, old_sum, new_sum, old_mix, new_mix]
    inner += [] if divisor is total else [divisor]
    inner += [old, old, new, new, old.args[0], new.args[0], top, top, old_top, new_top]
    inner += [old_product, new_product, old_scores, old_scores, new_scores, new_scores]
    for cached, port in found.caches:
        inner += [] if port is None else [cached, port]
    return found, inner


def _port(cached: Node) -> Node | None:
    """The input [1,K*D,1,T] of which a cache is another shape."""
    _, heads, size, room = cached.type.shape
    found = _arg(cached, Reshape)
    is_port = isinstance(found.op, Input) and found.type.shape == (1, heads * size, 1, room)
    return found if is_port else None


def _fits(of: Attention, end: Node, divisor: Node) -> bool:
    """Whether the sizes are those of one token's attention in floats."""
    if of.q.type.rank != AXES or of.cached_k.type.rank != AXES:
        return False
    groups, heads, size, lanes = of.q.type.shape
    room = of.cached_k.type.shape[-1]
    kept = (1, heads, size, room)
    return (
        lanes == 1
        and of.k.type.shape == of.v.type.shape == (1, heads, size, 1)
        and of.cached_k.type.shape == of.cached_v.type.shape == kept
        and of.cached_mask.type.shape == (1, 1, 1, room)
        and of.mask.type.shape == (1, 1, 1, 1)
        and divisor.type.shape == (groups, heads, 1, 1)
        and end.type.shape == of.q.type.shape
        and of.q.type.dtype.is_float
    )


def _rotation(end: Node) -> Found | None:
    """The rotation that ends here."""
    straight, crossed = _args(end, Add, 2)
    x, cos = _args(straight, Mul, 2)
    joined, sin = _args(crossed, Mul, 2)
    turned, low = _args(joined, Concat, 2)
    high = _arg(turned, Neg)
    if x is NOTHING or _arg(high, Slice) is not x or _arg(low, Slice) is not x:
        return None
    *lead, d, s = x.type.shape
    zeros, half = (0,) * len(lead), d // 2
    is_one = (
        joined.op == Concat(len(lead))
        and high.op == Slice((*zeros, half, 0), (*lead, d, s))
        and low.op == Slice((*zeros, 0, 0), (*lead, half, s))
        and cos.type.shape == sin.type.shape == (*(1,) * len(lead), d, s)
        and d == 2 * half
        and x.type.dtype.is_float
    )
    return (
        (Rotation(x, cos, sin), [straight, crossed, joined, turned, high, low]) if is_one else None
    )


def _norms(end: Node) -> Iterator[Found]:
    """The norms that end here: of a centred value, and of that value itself."""
    scaled, factor = _args(end, Mul, 2)
    mean = _arg(factor, Rsqrt)
    total, small = _args(mean, Add, 2)
    if total is NOTHING:  # nothing is added
        x, total, floor, root, inner = scaled, mean, None, None, [scaled, scaled, scaled]
    else:
        x, floor, root, inner = _scaling(scaled, small)
        inner += [mean, scaled, scaled, scaled, x, x, x]
    squares = _arg(total, ReduceMean)
    left, right = _args(squares, Mul, 2)
    is_one = left is right is scaled and total.op == ReduceMean(_CHANNELS)
    if not is_one or x is NOTHING or x.type.rank != AXES or not x.type.dtype.is_float:
        return
    inner += [factor, total, squares]
    eps = factor.op.eps  # type: ignore[attr-defined]  # of an Rsqrt
    whole, middle = _args(x, Sub, 2)
    if middle.op == ReduceMean(_CHANNELS) and middle.args == (whole,):
        yield Norm(whole, eps, True, floor, root), [*inner, middle]
    yield Norm(x, eps, False, floor, root), [node for node in inner if node is not x]


def _scaling(scaled: Node, small: Node) -> tuple[Node, Node, Node, list[Node]]:
    """x, the floor and the root of a scaled norm, and the nodes within; else nothing."""
    x, top = _args(scaled, RealDiv, 2)
    part, same_part = _args(small, Mul, 2)
    root, same_top = _args(part, RealDiv, 2)
    largest, floor = _args(top, Maximum, 2)
    sizes = _arg(largest, ReduceMax)
    same_x, turned = _args(sizes, Maximum, 2)
    is_one = (
        part is same_part
        and top is same_top
        and x is same_x is _arg(turned, Neg)
        and largest.op == ReduceMax(_CHANNELS)
        and floor.type.elements == root.type.elements == 1
    )
    inner = [small, part, part, top, top, largest, sizes, turned]
    return (x, floor, root, inner) if is_one else (NOTHING, NOTHING, NOTHING, [])


NOTHING = const(0.0, DType.FP32)
"""What is at the place of a node that is not there."""


def _args(node: Node, op: type[Op], count: int) -> tuple[Node, ...]:
    """The operands of a node, where it is that op."""
    is_it = isinstance(node.op, op) and len(node.args) == count
    return node.args if is_it else (NOTHING,) * count


def _arg(node: Node, op: type[Op]) -> Node:
    """The one operand of a node, where it is that op."""
    return _args(node, op, 1)[0]
