"""Attention as one op."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.node import Arrays, Node, Op, Types
from orion_ane.ir.spelling import MilArgs, MilCall
from orion_ane.ops.foreign.linear import fitted
from orion_ane.ops.reduction import Softmax
from orion_ane.ops.rules import FLOATS, broadcast, want_count, want_dtypes, want_same_dtype
from orion_ane.types import Array, DType, TensorType


@dataclass(frozen=True)
class Attention(Op, name="scaled_dot_product_attention"):
    """softmax(q kᵀ / √E + mask) v over the last two axes; a bool mask says what is seen.

    q: F[B,..,L,E], k: F[B,..,S,E], v: F[B,..,S,V], mask: F or bool [..,S], stretched to
    [B,..,L,S] -> F[B,..,L,V].  A row that sees nothing is zeros, as in `softmax` (case N03).
    No gradient: models are trained with the form that is spelled in ops.
    """

    has_mask: bool = False

    def infer(self, args: Types) -> TensorType:
        want_count(self, args, 3 + self.has_mask)
        q, k, v = args[:3]
        want_dtypes(self, q, FLOATS)
        want_same_dtype(self, q, k, "qk")
        want_same_dtype(self, q, v, "qv")
        lead = q.shape[:-2]
        fits = (
            q.rank >= 3
            and (k.rank, v.rank) == (q.rank, q.rank)
            and k.shape == (*lead, v.shape[-2], q.shape[-1])
            and v.shape[:-2] == lead
        )
        if not fits:
            want = "[B,..,L,E], [B,..,S,E] and [B,..,S,V]"
            raise ShapeError(self.name, "shapes do not fit", got=f"{q}, {k} and {v}", want=want)
        scores = q.with_shape((*lead, q.shape[-2], k.shape[-2]))
        if self.has_mask:
            mask = args[3]
            want_dtypes(self, mask, (DType.BOOL, q.dtype))
            whole = mask.rank and mask.shape[-1] == scores.shape[-1] and mask.rank <= q.rank
            if not whole or broadcast(self, scores, mask) != scores.shape:
                raise ShapeError(self.name, "mask does not fit", got=mask, want=f"as {scores}")
        return q.with_shape((*q.shape[:-1], v.shape[-1]))

    def eval(self, args: Arrays) -> Array:
        q, k, v = args[:3]
        with np.errstate(invalid="ignore", over="ignore"):
            return np.matmul(self.shares(np.matmul(q, k.swapaxes(-1, -2)), args), v)

    def shares(self, products: Array, args: Arrays) -> Array:
        """What each row takes of each position, of the operands and of q kᵀ."""
        q = args[0]
        scores = products / np.asarray(math.sqrt(q.shape[-1]), q.dtype)
        if self.has_mask:
            mask = args[3]
            hidden = np.asarray(-np.inf, q.dtype)
            scores = np.where(mask, scores, hidden) if mask.dtype == bool else scores + mask
        return Softmax(-1).eval((scores,))

    def grad(self, y: Node, dy: Node) -> tuple[Node | None, ...]:
        return (None,) * len(y.args)

    def mil(self) -> MilCall:
        mask = ("attn_mask",) if self.has_mask else ()
        return MilCall(self.name, ("query", "key", "value", *mask))

    @classmethod
    def read(cls, args: MilArgs) -> Node:
        q, mask = args.node("query"), args.maybe("attn_mask")
        more = () if mask is None else (fitted(mask, q),)
        return Node(cls(mask is not None), (q, args.node("key"), args.node("value"), *more))
