"""Wide products, which numpy's BLAS computes between two stretches of a plan."""

from __future__ import annotations

import threading

import numpy as np

from orion_ane.engine import kernels
from orion_ane.engine.threads import Threads
from orion_ane.types import Array

BLOCK_ROWS = 256  # of a weight: 256 × 4096 fp32 are 4 MiB
MAX_PARTS = 32  # of a batch: enough for the threads there are to end together
SMALL = 1 << 21  # multiply-adds that are not worth dealing out


def multiply(x: Array, y: Array, out: Array, *, rounds: bool, threads: Threads) -> None:
    """out = x @ y over the last two axes, the others alike; x may be an fp16 matrix.

    It is cut by its shape alone: into rows of x, or into the matrices of a batch.
    """
    batch = out.shape[:-2]
    if any(size > 1 for size in batch):
        indices = list(np.ndindex(batch))
        parts = min(len(indices), MAX_PARTS)

        def part(i: int) -> None:
            for index in indices[i * len(indices) // parts : (i + 1) * len(indices) // parts]:
                _into(x[index], y[index], out[index], rounds)
    else:
        lead = (0,) * len(batch)
        x, y, out = x[lead], y[lead], out[lead]
        rows = x.shape[0]
        parts = 2 * -(-rows // (2 * BLOCK_ROWS)) if out.size * x.shape[1] > SMALL else 1
        parts = min(parts, rows)

        def part(i: int) -> None:
            cut = slice(i * rows // parts, (i + 1) * rows // parts)
            _into(x[cut], y, out[cut], rounds)

    threads.each(part, range(parts))


def _into(x: Array, y: Array, out: Array, rounds: bool) -> None:
    with np.errstate(all="ignore"):  # a thread has its own
        np.matmul(_widened(x) if x.dtype == np.uint16 else x, y, out=out)
    if rounds:
        kernels.round_to_half(out.reshape(-1))


class _Scratch(threading.local):
    """A thread's buffer for one block of a weight, kept between products."""

    buffer = np.empty(0, np.float32)


_SCRATCH = _Scratch()


def _widened(half: Array) -> Array:
    """fp16 rows as fp32, in this thread's buffer and valid until its next."""
    if _SCRATCH.buffer.size < half.size:
        _SCRATCH.buffer = np.empty(half.size, np.float32)
    wide = _SCRATCH.buffer[: half.size]
    kernels.widen(half.reshape(-1), wide)
    return wide.reshape(half.shape)
