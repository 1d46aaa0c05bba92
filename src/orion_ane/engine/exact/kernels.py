"""The one pass that makes fp16 values, as the ANE has them, of results in fp32."""

from __future__ import annotations

import numpy as np

from orion_ane.engine.jit import compiled
from orion_ane.types import Array

_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
_INFINITE, _CEILING = np.uint32(0x7F800000), np.uint32(0x47800000)  # the second is 2^16
_NORMAL = np.uint32(0x38800000)  # 2^-14
_HALF, _KEPT = np.uint32(0x1000), np.uint32(0xFFFFE000)  # of the last bit of fp16, and above it


@compiled()
def settle(values: Array, bits: Array) -> None:
    """Round to fp16 in place, ties away from zero; NaN is +0.  Both are one flat fp32 array."""
    for i in range(values.shape[0]):
        size = bits[i] & _MAGNITUDE
        sign = bits[i] & _SIGN
        if size > _INFINITE:
            bits[i] = np.uint32(0)
        elif size >= _NORMAL:
            rounded = (size + _HALF) & _KEPT
            bits[i] = sign | (_INFINITE if rounded >= _CEILING else rounded)
        else:
            steps = abs(values[i]) * np.float32(2.0**24)
            whole = np.floor(steps)
            if steps - whole >= np.float32(0.5):
                whole += np.float32(1)
            values[i] = np.copysign(whole * np.float32(2.0**-24), values[i])
