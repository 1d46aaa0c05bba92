"""conv1x1 with a constant weight: thin products by our kernels, wide ones by numpy's BLAS.

The order of a sum differs from `Op.eval`'s, and between these ways; which way is taken depends
on the types alone.
"""

from __future__ import annotations

import threading

import numpy as np

from orion_ane.engine import steady
from orion_ane.engine.functions import Function
from orion_ane.engine.half import bits, widen
from orion_ane.engine.threads import Threads
from orion_ane.types import Array, TensorType

THIN_COLUMNS = 16  # up to here reading the weight costs more than multiplying by it
SMALL_WEIGHT = 1 << 16  # elements: in cache, and sooner multiplied than a parallel region starts
SMALL_PRODUCT = 1 << 21  # multiply-adds that are not worth dealing out
BLOCK_ROWS = 256  # of a wide product: 256 × 4096 fp32 are 4 MiB


def conv1x1(x: TensorType, weight: Array, threads: Threads) -> Function:
    """out[o, s] = Σᵢ w[o, i] x[i, s] with a constant weight, fp16 or fp32, as a function of x.

    An fp16 weight is widened where it is small; else row by row or block by block, in each run.
    """
    n, inner, h, s = x.shape
    outer, columns = weight.shape[0], n * h * s
    flat = weight.reshape(outer, inner)
    if n == 1:
        product = _product(flat, columns, (1, outer, h, s), threads)
        return lambda x: product(x.reshape(inner, columns))
    product = _product(flat, columns, (outer, n, h, s), threads)

    def batched(x: Array) -> Array:
        y = product(x.transpose(1, 0, 2, 3).reshape(inner, columns))
        return np.ascontiguousarray(y.transpose(1, 0, 2, 3))

    return batched


def _product(weight: Array, columns: int, shape: tuple[int, ...], threads: Threads) -> Function:
    """[O,I] times [I, columns] as a function of the right side, the result [O, columns] so shaped.

    The result owns its memory where it is large, so that a port may hand it out.
    """
    if weight.size <= SMALL_WEIGHT and weight.size * columns <= SMALL_PRODUCT:
        wide = widen(weight) if weight.dtype == np.float16 else weight
        return lambda x: steady.multiply(wide, x, rows=False).reshape(shape)
    if columns == 1:
        return _by_vector(weight, shape, threads)
    if columns <= THIN_COLUMNS:
        return _by_columns(weight, columns, shape, threads)
    return _by_blocks(weight, columns, shape, threads)


def _by_vector(weight: Array, shape: tuple[int, ...], threads: Threads) -> Function:
    from orion_ane.engine import kernels

    threads.use_kernels = True
    w, kernel = bits(weight), kernels.rows_by_vector

    def product(x: Array) -> Array:
        y = np.empty(shape, np.float32)
        kernel(w, x.flatten(), y.reshape(-1))  # x copied: the kernel sees one kind of array
        return y

    return product


def _by_columns(weight: Array, columns: int, shape: tuple[int, ...], threads: Threads) -> Function:
    from orion_ane.engine import kernels

    threads.use_kernels = True
    w, kernel = bits(weight), kernels.rows_by_columns

    def product(x: Array) -> Array:
        y = np.empty(shape, np.float32)
        kernel(w, x.T.copy(), y.reshape(-1, columns))
        return y

    return product


def _by_blocks(weight: Array, columns: int, shape: tuple[int, ...], threads: Threads) -> Function:
    (outer, inner), wide = weight.shape, steady.edged(columns)
    # An even number of blocks of equal size, so that two threads end together.
    parts = 2 * -(-outer // (2 * BLOCK_ROWS)) if weight.size * columns > SMALL_PRODUCT else 1
    parts = min(parts, max(1, weight.size * columns // (2 * steady.LEAST)))  # none is small
    rows = [slice(i * outer // parts, (i + 1) * outer // parts) for i in range(parts)]
    block_of = _widened(weight) if weight.dtype == np.float16 else weight.__getitem__

    def product(x: Array) -> Array:
        x = np.ascontiguousarray(steady.filled(x, inner, wide))
        y = np.empty(shape if wide == columns else (outer, wide), np.float32)
        out = y.reshape(outer, wide)

        def block(part: int) -> None:
            with np.errstate(all="ignore"):  # a thread has its own
                np.matmul(block_of(rows[part]), x, out=out[rows[part]])

        threads.each(block, range(parts))
        return y if wide == columns else np.ascontiguousarray(y[:, :columns]).reshape(shape)

    return product


class _Scratch(threading.local):
    """A thread's buffer for one block of a weight, kept between products."""

    buffer = np.empty(0, np.float32)


_SCRATCH = _Scratch()


def _widened(weight: Array) -> Function:
    """Rows of an fp16 weight as fp32, in this thread's buffer and valid until its next."""
    from orion_ane.engine import kernels

    w, kernel = bits(weight), kernels.widen

    def block(rows: slice) -> Array:
        half = w[rows]
        if _SCRATCH.buffer.size < half.size:
            _SCRATCH.buffer = np.empty(half.size, np.float32)
        wide = _SCRATCH.buffer[: half.size]
        kernel(half.reshape(-1), wide)
        return wide.reshape(half.shape)

    return block
