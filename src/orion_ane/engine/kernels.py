"""The numba kernels that convert fp16.

One file, since numba's disk cache does not notice a change in a helper of another file.  They are
compiled at their first call and kept on disk: beside this file, or in `NUMBA_CACHE_DIR`, or in
the user's cache; where none of these can be written, for this process alone.  Importing this
module imports numba, so it is imported only by who needs a kernel.

fp16 travels as its bits, uint16: LLVM's half type converts, so that a loop becomes the
processor's own conversion instructions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from orion_ane.engine.jit import compiled, intrinsic
from orion_ane.types import Array


@intrinsic
def _load(_context: Any, x: Any) -> Any:
    """A weight as fp32: itself, or the fp16 whose bits it is."""

    def from_single(_c: Any, _b: Any, _s: Any, args: Any) -> Any:
        return args[0]

    def from_half(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(x), from_half if x == types.uint16 else from_single


@intrinsic
def _half(_context: Any, x: Any) -> Any:
    """The bits of an fp32 value rounded to fp16, to nearest even."""

    def to_half(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(x), to_half


@compiled()
def widen(h: Array, x: Array) -> None:
    """Write the fp16 values of the bits `h`, or the fp32 values `h`, to x.  Both flat."""
    for i in range(h.shape[0]):
        x[i] = _load(h[i])


@compiled()
def narrow(x: Array, h: Array) -> None:
    """Write the bits of x, rounded to fp16, to `h`.  Both flat."""
    for i in range(x.shape[0]):
        h[i] = _half(x[i])


@compiled()
def round_to_half(x: Array) -> None:
    """Round x to the nearest fp16 values, in place.  Flat."""
    for i in range(x.shape[0]):
        x[i] = _load(_half(x[i]))
