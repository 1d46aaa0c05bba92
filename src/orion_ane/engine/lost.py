"""How many products of a sum vanish, counted without forming them (docs/numerics.md).

A product is 0 where its operands' exponents, each at least -14, sum to less than -16; and where it
is below 2^-17, half of the grid's step, which only that of a subnormal number still can be.  So
it takes a count of exponents for each factor of the sum, and a look at magnitudes for subnormals.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from orion_ane.engine.half import narrow
from orion_ane.engine.windows import windows
from orion_ane.ir.node import Node
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.types import Array

FIELDS = 32
"""Kinds of numbers: exponents from -14 on; TINY; and NONE."""
TINY, NONE = 30, 31  # not 0, but 0 in fp16, as fp32 has such; 0 itself and what is not finite
PAIRS = 12  # exponents from -14 on that some other exponent can bring below -16
CHUNK = 1 << 20

_QUARTER, _INFINITE, _NORMAL = 0x3400, 0x7C00, 0x0400  # bits of fp16
_KEY = 1 << 16


def _least() -> Array:
    """For each subnormal number, the bits of the smallest whose product with it is 2^-17."""
    size = np.arange(1, _NORMAL)
    least = (2.0**7 / size).astype(np.float16)
    return np.append(0, least.view(np.uint16) + (least.astype(np.float64) * size < 2.0**7))


_LEAST = _least()


@dataclass(frozen=True, eq=False)
class Factors:
    """One side of a sum of products, [parts, numbers, factors], as far as counting needs it.

    Attributes:
        counts: [parts · factors, FIELDS], how many numbers of each kind meet a factor.
        small: of each subnormal number its factor · 2^16 + the bits that spare a product of it.
        large: factor · 2^16 + bits, in order, of numbers from a quarter on: the others' products
            with a subnormal number vanish by their exponents.
    """

    counts: Array
    small: Array
    large: Array


def multiplies(node: Node) -> bool:
    """Whether a node is a sum of products whose products are counted."""
    return isinstance(node.op, Conv1x1 | Linear | Matmul | Conv)


def factors(node: Node, x: Array, w: Array, known: Factors | None) -> tuple[Factors, Factors]:
    """Both sides of such a node; `known` is w's, where that was counted before."""
    match node.op:
        case Linear():
            left, right = x.reshape(1, -1, x.shape[-1]), w[None]
        case Matmul(tx=tx, ty=ty):
            left, right = _matrices(
                x.swapaxes(-1, -2) if tx else x, w if ty else w.swapaxes(-1, -2)
            )
        case Conv() as op:
            left = windows(op, x, w.shape[2:])
            right = w.reshape(op.groups, -1, prod(w.shape[1:]))
        case _:
            left = np.moveaxis(x, 1, -1).reshape(1, -1, x.shape[1])
            right = w.reshape(1, w.shape[0], -1)
    return _counted(left), known or _counted(right)


def counted(left: Factors, right: Factors) -> tuple[int, int]:
    """How many products of numbers other than 0 there are, and how many of them vanish."""
    x, w = (side.counts[:, :NONE] for side in (left, right))
    pairs = int((x.sum(-1) * w.sum(-1)).sum())
    low = np.cumsum(x[:, :PAIRS], -1)[:, ::-1]  # as many as bring w's exponent below
    lost = int((low * w[:, :PAIRS]).sum())
    lost += int((x[:, TINY] * w.sum(-1) + w[:, TINY] * x[:, :TINY].sum(-1)).sum())
    return pairs, lost + _below(left.small, right.large) + _below(right.small, left.large)


def _below(small: Array, large: Array) -> int:
    """How many pairs of a subnormal number and one from a quarter on fall short of 2^-17."""
    if not (small.size and large.size):
        return 0
    first = np.searchsorted(large, small // _KEY * _KEY)
    return int((np.searchsorted(large, small) - first).sum())


def _matrices(x: Array, w: Array) -> tuple[Array, Array]:
    """[...,M,K] and [...,N,K] as [parts,M,K] and [parts,N,K]; one of w serves all of x."""
    batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    if prod(w.shape[:-2]) == 1:
        parts = np.broadcast_to(x, (*batch, *x.shape[-2:]))
        return parts.reshape(1, -1, x.shape[-1]), w.reshape(1, *w.shape[-2:])
    sides = (np.broadcast_to(side, (*batch, *side.shape[-2:])) for side in (x, w))
    left, right = (side.reshape(-1, *side.shape[-2:]) for side in sides)
    return left, right


def _counted(v: Array) -> Factors:
    parts, n, k = v.shape
    counts = np.zeros(parts * k * FIELDS, np.int64)
    small, large = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rows = max(1, CHUNK // k)
    for part in range(parts):
        place = np.arange(part * k, (part + 1) * k)
        for first in range(0, n, rows):
            values = v[part, first : first + rows]
            bits, kind = _kinds(values)
            found = np.bincount((kind + (place - part * k) * FIELDS).ravel(), minlength=k * FIELDS)
            counts[part * k * FIELDS : (part + 1) * k * FIELDS] += found
            keys = np.broadcast_to(place * _KEY, bits.shape)
            is_small, is_large = (bits > 0) & (bits < _NORMAL), bits >= _QUARTER
            small.append(keys[is_small] + _LEAST[bits[is_small]])
            large.append((keys + bits)[is_large & (bits < _INFINITE)])
    in_order = np.sort(np.concatenate(large))
    return Factors(counts.reshape(-1, FIELDS), np.concatenate(small), in_order)


def _kinds(values: Array) -> tuple[Array, Array]:
    """The bits of magnitudes in fp16, and which of the FIELDS each number is."""
    is_half = values.dtype == np.float16
    half = values if is_half else narrow(np.ascontiguousarray(values, np.float32))
    bits = np.ascontiguousarray(half).view(np.uint16) & 0x7FFF
    kind = np.maximum(bits >> 10, 1).astype(np.int64) - 1
    kind[(bits == 0) | (bits >= _INFINITE)] = NONE
    if not is_half:
        kind[(bits == 0) & (values != 0)] = TINY
    return bits, kind
