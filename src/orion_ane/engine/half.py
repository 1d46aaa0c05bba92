"""fp16 values in and out of fp32 arrays: numpy where few, a kernel where numpy would be slow.

Both round to nearest even, so which one ran does not show in the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orion_ane.types import Array

KERNEL_ELEMENTS = 256
"""From here on a kernel is faster: numpy converts one at a time, 4 ns an element each way."""


def read_only(array: Array) -> Array:
    """The array, contiguous and unwritable: numba compiles for either, and one form is enough."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def bits(half: Array) -> Array:
    """The bits of fp16 values, as a kernel takes them; an array of another type as it is."""
    return read_only(half).view(np.uint16) if half.dtype == np.float16 else read_only(half)


def widen(half: Array) -> Array:
    """The same values in a new fp32 array."""
    if half.size < KERNEL_ELEMENTS:
        return half.astype(np.float32, order="C")
    from orion_ane.engine import kernels

    wide = np.empty(half.shape, np.float32)
    kernels.widen(bits(half).reshape(-1), wide.reshape(-1))
    return wide


def narrow(wide: Array) -> Array:
    """fp32 values rounded to fp16, in a new array."""
    if wide.size < KERNEL_ELEMENTS:
        return wide.astype(np.float16, order="C")
    from orion_ane.engine import kernels

    half = np.empty(wide.shape, np.float16)
    kernels.narrow(read_only(wide).reshape(-1), half.view(np.uint16).reshape(-1))
    return half


def rounder(elements: int) -> Callable[[Array], Array]:
    """What rounds an fp32 array of that many elements to fp16 values, and may do so in place."""
    if elements < KERNEL_ELEMENTS:
        return lambda x: x.astype(np.float16).astype(np.float32)
    from orion_ane.engine import kernels

    round_to_half = kernels.round_to_half

    def rounded(x: Array) -> Array:
        flat = x.ravel(order="K")  # a view: a fresh result is dense, in some order of its axes
        round_to_half(flat)
        return x if flat.base is not None else flat.reshape(x.shape)

    return rounded
