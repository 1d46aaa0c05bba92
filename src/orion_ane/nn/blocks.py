"""The parts of a transformer, spelled in ops.

Sizes: B batch, S lanes (positions of one run), T cached positions, C channels, H heads,
K key/value heads, G = H/K query heads a key head, D head size, F hidden, V vocabulary.
Activations are packed [1, C, 1, S], as the ANE reads its ports (paper, limit 20).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, pi, sqrt

from orion_ane.ir import Node
from orion_ane.ops import (
    cast,
    concat,
    const,
    conv1x1,
    exp,
    matmul,
    maximum,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reshape,
    rsqrt,
    sigmoid,
    slice_by_index,
    softmax,
    tanh,
    weight,
)
from orion_ane.ops.foreign.quantization import AffineDequantize, BlockwiseShiftScale
from orion_ane.types import DType, TensorType

MASKED = {DType.FP16: -1e4, DType.FP32: -1e9}
"""Added to the scores of what may not be seen: far below any, finite, and fits its type (N01)."""
NORM_SCALE_FLOOR = 2.0**-6  # eps / floor² stays far below fp16's range


@dataclass(frozen=True)
class Precision:
    """Element types of a model's programs.

    Attributes:
        compute: of activations, ports, biases and gains.
        matrices: of weight matrices; where it differs, each is cast on its way into its product,
            and unpacked if it is int8.
        block: of int8 matrices, how many codes of a row have one scale; None is all of them.
    """

    compute: DType
    matrices: DType
    block: int | None = None

    def matrix(self, label: str, rows: int, columns: int, *, unit: int = 0) -> Node:
        """The weight matrix `label`, [rows, columns, 1, 1], in the compute type.

        No block of codes crosses a multiple of `unit` columns.
        """
        if self.matrices is DType.INT8:
            return self._unpacked(label, rows, columns, unit)
        stored = weight(label, TensorType(self.matrices, (rows, columns, 1, 1)))
        return stored if self.matrices == self.compute else cast(stored, self.compute)

    def _unpacked(self, label: str, rows: int, columns: int, unit: int) -> Node:
        """Codes times their scales, which a device unpacks when it loads or reads as they are."""
        codes = weight(label, TensorType(DType.INT8, (rows, columns, 1, 1)))
        if self.block is None:
            scale = weight(scale_of(label), TensorType(self.compute, (rows,)))
            return Node(AffineDequantize(0), (codes, scale, const(0, DType.INT8)))
        blocks = columns // gcd(self.block, columns, unit)
        scale = weight(scale_of(label), TensorType(DType.FP16, (rows, blocks, 1, 1)))
        wide = scale if self.compute is DType.FP16 else cast(scale, self.compute)
        return Node(BlockwiseShiftScale(), (codes, wide))

    def vector(self, label: str, channels: int) -> Node:
        """The weight vector `label`, [1, channels, 1, 1]."""
        return weight(label, TensorType(self.compute, (1, channels, 1, 1)))


def scale_of(label: str) -> str:
    """The label of the scales of a matrix of codes."""
    return f"{label}.scale"


def linear(x: Node, w: Node, bias: Node | None = None) -> Node:
    """w x + bias for each lane: x [1,I,1,S], w [O,I,1,1] -> [1,O,1,S]."""
    y = conv1x1(x, w)
    return y if bias is None else y + bias


def rms_norm(x: Node, gain: Node, eps: float) -> Node:
    """x / sqrt(mean(x²) + eps) · gain over the channels of each lane.

    In fp16 a square overflows from 256 on, so x is first divided by its largest magnitude m, and
    eps by m², which is the same value (cases N07, N09).
    """
    return normalise(x, eps) * gain


def layer_norm(x: Node, gain: Node, bias: Node, eps: float) -> Node:
    """(x - mean) / sqrt(variance + eps) · gain + bias over the channels of each lane."""
    return normalise(x - reduce_mean(x, (1,)), eps) * gain + bias


def normalise(x: Node, eps: float, axes: tuple[int, ...] = (1,)) -> Node:
    """x / sqrt(mean(x²) + eps) over `axes`, without an overflow in fp16."""
    if x.type.dtype != DType.FP16:
        return x * rsqrt(reduce_mean(x * x, axes), eps)
    floor = const(NORM_SCALE_FLOOR, DType.FP16)
    largest = maximum(reduce_max(maximum(x, -x), axes), floor)
    scaled = x / largest
    small = const(sqrt(eps), DType.FP16) / largest  # eps itself is subnormal in fp16
    return scaled * rsqrt(reduce_mean(scaled * scaled, axes) + small * small, 0.0)


def gelu(x: Node) -> Node:
    """x · Φ(x) in the tanh form that GPT-2 was trained with (case N11; paper, limit 10)."""
    dtype = x.type.dtype
    inner = x * (const(sqrt(2 / pi), dtype) + x * x * const(sqrt(2 / pi) * 0.044715, dtype))
    return x * const(0.5, dtype) * (tanh(inner) + const(1, dtype))


def silu(x: Node) -> Node:
    """x · sigmoid(x)."""
    return x * sigmoid(x)


def rotate(x: Node, cos: Node, sin: Node) -> Node:
    """Rotary positions in the half-split order: x [..,D,S], cos and sin [1,1,D,S] -> as x.

    Channel i turns with channel i + D/2 (cases R01, R03).
    """
    *lead, d, s = x.type.shape
    zeros = (0,) * len(lead)
    low = slice_by_index(x, (*zeros, 0, 0), (*lead, d // 2, s))
    high = slice_by_index(x, (*zeros, d // 2, 0), (*lead, d, s))
    return x * cos + concat(-high, low, axis=len(lead)) * sin


@dataclass(frozen=True)
class Cache:
    """The keys and values of earlier positions, as a program reads them.

    k, v: [1,K,D,T]; mask: [1,1,S,T], added to the scores.
    """

    k: Node
    v: Node
    mask: Node


def attention(q: Node, k: Node, v: Node, *, mask: Node, cache: Cache | None) -> Node:
    """Softmax attention of grouped heads, without repeating keys and without a transpose.

    q [G,K,D,S], k and v [1,K,D,S], mask [1,1,S,S] -> [G,K,D,S].  The query groups are the batch
    axis, over which the product broadcasts.  With a cache the two score blocks share one shift
    and one sum, so that nothing as long as the cache is ever copied.

    The weights are divided by their sum last: on the ANE products below 2⁻¹⁶ vanish, so small
    quotients should not enter a product (ane-numerics, 2).
    """
    q = q * const(1 / sqrt(q.type.shape[2]), q.type.dtype)
    new = matmul(q, k, tx=True) + mask  # [G,K,S,S]
    if cache is None:
        return matmul(v, softmax(new, 3), ty=True)
    old = matmul(q, cache.k, tx=True) + cache.mask  # [G,K,S,T]
    top = maximum(reduce_max(old, (3,)), reduce_max(new, (3,)))
    old, new = exp(old - top), exp(new - top)
    total = reduce_sum(old, (3,)) + reduce_sum(new, (3,))  # [G,K,S,1]
    g, k_heads, s, _ = total.type.shape
    mixed = matmul(cache.v, old, ty=True) + matmul(v, new, ty=True)  # [G,K,D,S]
    return mixed / reshape(total, (g, k_heads, 1, s))
