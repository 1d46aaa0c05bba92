"""Elements narrower than a byte, packed lowest bits first: what blob files hold of int4 and kin.

Three- and six-bit elements straddle bytes: the low part fills the high bits of one byte, the rest
the low bits of the next (MIL reference, 2).
"""

from __future__ import annotations

from math import lcm

import numpy as np
from numpy.typing import NDArray

from orion_ane.types import Array

Bytes = NDArray[np.uint8]


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` elements of `bits` bits fill, the last one perhaps in part."""
    return -(-count * bits // 8)


def pack_bits(values: Array, bits: int) -> Bytes:
    """The low `bits` bits of each element, packed; unused high bits of the last byte are zero."""
    span, per_group = _group(bits)
    groups = -(-values.size // per_group)
    padded = np.zeros(groups * per_group, np.uint32)
    padded[: values.size] = values.ravel()
    padded &= (1 << bits) - 1
    columns = padded.reshape(groups, per_group)
    words = np.zeros(groups, np.uint32)
    for i in range(per_group):
        words |= columns[:, i] << np.uint32(i * bits)
    data = np.stack([words >> np.uint32(8 * i) for i in range(span)], axis=1)  # truncated below
    return data.astype(np.uint8).ravel()[: packed_size(values.size, bits)]


def unpack_bits(data: Bytes, bits: int, count: int) -> Bytes:
    """The first `count` elements of `bits` bits, each in a byte, not sign-extended."""
    span, per_group = _group(bits)
    groups = -(-count // per_group)
    padded = np.zeros(groups * span, np.uint8)
    padded[: data.size] = data
    columns = padded.reshape(groups, span)
    words = np.zeros(groups, np.uint32)
    for i in range(span):
        words |= columns[:, i].astype(np.uint32) << np.uint32(8 * i)
    values = np.empty((groups, per_group), np.uint8)
    for i in range(per_group):
        values[:, i] = (words >> np.uint32(i * bits)) & np.uint32((1 << bits) - 1)
    return values.ravel()[:count]


def sign_extended(values: Bytes, bits: int) -> NDArray[np.int8]:
    """Two's complement of `bits` bits, widened to int8."""
    sign = np.uint8(1 << (bits - 1))
    return ((values ^ sign).astype(np.int16) - np.int16(sign)).astype(np.int8)


def _group(bits: int) -> tuple[int, int]:
    """The fewest whole bytes that hold whole elements, and how many elements they hold."""
    return lcm(bits, 8) // 8, lcm(bits, 8) // bits
