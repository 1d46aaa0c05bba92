"""What a convolution's kernel meets at each of its steps."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from orion_ane.ops.foreign.conv import Conv
from orion_ane.types import Array


def windows(op: Conv, x: Array, kernel: tuple[int, ...]) -> Array:
    """[groups, windows, channels · taps]: what the kernel meets at each of its steps."""
    axes = range(2, x.ndim)
    pads = [(op.pad[2 * i], op.pad[2 * i + 1]) for i in range(len(kernel))]
    reach = [(size - 1) * d + 1 for size, d in zip(kernel, op.dilations, strict=True)]
    seen = sliding_window_view(np.pad(x, ((0, 0), (0, 0), *pads)), reach, tuple(axes))
    steps = (slice(None, None, by) for by in (*op.strides, *op.dilations))
    seen = seen[:, :, *steps]  # [N, channels, *places, *taps]
    seen = np.moveaxis(seen, 1, len(kernel) + 1)
    count, channels = prod(seen.shape[: len(kernel) + 1]), x.shape[1]
    parts = seen.reshape(count, op.groups, channels // op.groups * prod(kernel))
    return parts.swapaxes(0, 1)
