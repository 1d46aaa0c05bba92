"""fp16 values in and out of fp32 arrays: numpy where few, a kernel where numpy would be slow.

Both round to nearest even, so which one ran does not show in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from orion_ane.types import Array

KERNEL_ELEMENTS = 256
"""From here on a kernel is faster: numpy converts one at a time, 4 ns an element each way."""


@cache
def _kernels() -> Any:
    """The kernels, when the first is needed: they import numba."""
    from orion_ane.engine import kernels

    return kernels


def read_only(array: Array) -> Array:
    """The array, contiguous and unwritable: numba compiles for either, and one form is enough."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def bits(half: Array) -> Array:
    """The bits of fp16 values, as a kernel takes them; an array of another type as it is."""
    return read_only(half).view(np.uint16) if half.dtype == np.float16 else read_only(half)


def flat(array: Array) -> Array:
    """What `bits` gives, as one row."""
    row = array.ravel()
    if row.dtype == np.float16:
        row = row.view(np.uint16)
    row.setflags(write=False)  # of this view, or copy
    return row


def widen(half: Array) -> Array:
    """The same values in a new fp32 array."""
    if half.size < KERNEL_ELEMENTS:
        return half.astype(np.float32, order="C")
    wide = np.empty(half.shape, np.float32)
    _kernels().widen(flat(half), wide.ravel())
    return wide


def narrow(wide: Array) -> Array:
    """fp32 values rounded to fp16, in a new array."""
    if wide.size < KERNEL_ELEMENTS:
        return wide.astype(np.float16, order="C")
    half = np.empty(wide.shape, np.float16)
    _kernels().narrow(flat(wide), half.view(np.uint16).ravel())
    return half


def rounder(elements: int) -> Callable[[Array], Array]:
    """What rounds an fp32 array of that many elements to fp16 values, and may do so in place."""
    if elements < KERNEL_ELEMENTS:
        return lambda x: x.astype(np.float16).astype(np.float32)
    round_to_half = _kernels().round_to_half

    def rounded(x: Array) -> Array:
        row = x.ravel(order="K")  # a view: a fresh result is dense, in some order of its axes
        round_to_half(row)
        return x if row.base is not None else row.reshape(x.shape)

    return rounded
