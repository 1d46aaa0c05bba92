"""Product-sums as the ANE computes them, bit for bit: of matrices, and of batches of them.

Results depend neither on the number of threads nor on which kernel computes them.  Importing this
module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from orion_ane.ane.numerics import Overflow
from orion_ane.engine.half import bits, narrow, widen
from orion_ane.engine.macs import kernels
from orion_ane.engine.macs.thin import thin
from orion_ane.engine.macs.vectors import DEPTH, PANEL, ROWS
from orion_ane.engine.threads import Threads
from orion_ane.errors import ShapeError
from orion_ane.types import Array

Shape: TypeAlias = tuple[int, ...]

THIN_COLUMNS = PANEL // 4  # up to here a panel would be too empty to be faster
PARTS, PART = 16, 1 << 22  # at most so many parts of so many products, whatever the threads


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A left side [O,K], measured: worth keeping where it is a constant."""

    left: kernels.Left
    longest: float
    """The largest Σ|w| of a total of the thin product, of rows that are finite."""

    @property
    def shape(self) -> tuple[int, int]:
        """O and K."""
        outer, inner = self.left.bits.shape
        return outer, inner


def rows(w: Array) -> Rows:
    """Measure a left side w [O,K] of fp16, which is not copied where it is contiguous.

    Raises:
        ShapeError: not a matrix of fp16.
    """
    if w.ndim != 2 or w.dtype != np.float16:
        raise ShapeError("product_sum", "not a left side", got=_described(w), want="fp16[O,K]")
    outer, inner = w.shape
    left = kernels.Left(
        bits(w),
        np.empty((outer, -(-inner // DEPTH)), np.float32),
        np.empty((outer, 2), np.float32),
        np.empty(outer, np.bool_),
    )
    kernels.measure(left)
    return Rows(left, float(left.bound[:, 1].max(where=~left.odd, initial=0)))


def product_sum(
    w: Array | Rows, x: Array, *, overflow: Overflow, threads: Threads | None = None
) -> Array:
    """y [O,S] = w [O,K] x [K,S], as the ANE's multiply-accumulate rounds it.

    Args:
        w: fp16, or what `rows` made of it.
        x: fp16, or fp32 that holds fp16 values; y is of the same type.
        overflow: what makes a sum infinite: its end, or any partial sum in ascending k.
        threads: who computes wide products; by default the caller alone.

    Raises:
        ShapeError: other types, or shapes that do not fit.
    """
    left, few = w if isinstance(w, Rows) else rows(w), _unlike(x, -1)
    y = np.empty((left.shape[0], *few.shape[1:]), np.float16)
    _run(left, few, y.view(np.uint16), overflow, threads)
    return _repeated(widen(y) if x.dtype == np.float32 else y, -1, x.shape[-1])


def exact_sums(
    w: Array | Rows, x: Array, *, overflow: Overflow, threads: Threads | None = None
) -> Array:
    """The sums [O,S] of `product_sum` before they are rounded to fp16, as fp64.

    They are multiples of 2^-16; only such as pass 2^37 are themselves rounded.
    """
    left = w if isinstance(w, Rows) else rows(w)
    sums = np.empty((left.shape[0], *x.shape[1:]))
    _run(left, x, sums, overflow, threads)
    return sums


def matmul(x: Array, y: Array, *, overflow: Overflow, threads: Threads | None = None) -> Array:
    """x [...,M,K] y [...,K,N] -> [...,M,N] of fp16, other axes broadcast: each matrix by the rule.

    What the ANE does with two operands that are both computed is known in part only
    (ane-numerics, section 2): the same grid.
    """
    sizes = x.shape[-2], y.shape[-1]
    x, y = _unlike(x, -2), _unlike(y, -1)
    found = _each(x, y, overflow=overflow, threads=threads)
    return _repeated(_repeated(found, -2, sizes[0]), -1, sizes[1])


def _each(x: Array, y: Array, *, overflow: Overflow, threads: Threads | None) -> Array:
    """The matrices of `matmul`, at once or one by one."""
    few = small(x.shape, y.shape, overflow=overflow)
    if few is not None:
        return narrow(few(widen(x), widen(y)))
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    out = np.empty((*batch, x.shape[-2], y.shape[-1]), np.float16)
    x, y = (np.broadcast_to(side, (*batch, *side.shape[-2:])) for side in (x, y))
    for at in np.ndindex(batch):
        if x.shape[-2] <= THIN_COLUMNS:  # the longer side is streamed
            out[at] = product_sum(y[at].T, x[at].T, overflow=overflow, threads=threads).T
        else:
            out[at] = product_sum(x[at], y[at], overflow=overflow, threads=threads)
    return out


def small(
    x: Shape, y: Shape, *, overflow: Overflow, tx: bool = False, ty: bool = False
) -> Callable[[Array, Array], Array] | None:
    """What multiplies many small thin matrices at once, of which calls cost most; None of others.

    Its operands and results are fp16 values in fp32, and tx and ty say which sides are transposed.
    """
    batch = np.broadcast_shapes(x[:-2], y[:-2])
    inner, outer = x[-2:] if tx else x[:-3:-1]
    columns = y[-2] if ty else y[-1]
    thin = min(outer, columns)
    shape = (*batch, outer, columns)
    if prod(batch) == 1 or thin > THIN_COLUMNS or inner * prod(shape) >= PART:
        return None
    from orion_ane.engine.macs.batches import thin_batch

    is_left = outer < columns  # the thin side
    long_turned, thin_turned = (not ty, tx) if is_left else (tx, not ty)
    sizes = max(outer, columns), thin, inner
    # A row is a column as well, and is read as what takes longer strides.
    turned = (long_turned and sizes[0] > 1) or inner == 1, thin_turned, is_left
    wholes, sticky = [(*batch, *side[-2:]) for side in (x, y)], overflow == "sticky"

    def product(x: Array, y: Array) -> Array:
        z = np.empty(shape, np.float32)
        sides = [
            (side if side.shape == whole else np.broadcast_to(side, whole)).ravel()
            for side, whole in zip((x, y), wholes, strict=True)
        ]
        thin_batch(sides[is_left], sides[not is_left], z.ravel(), sizes, turned, sticky)
        return z

    return product


def _unlike(x: Array, axis: int) -> Array:
    """What comes first along an axis, up to the first of those at its end that are all alike.

    Lanes that hold no token are, and what is computed of one is so of all.
    """
    size = x.shape[axis]
    if size <= THIN_COLUMNS or x.dtype not in (np.float16, np.float32):
        return x
    of = np.moveaxis(x.view(np.uint16 if x.dtype == np.float16 else np.uint32), axis, 0)
    if not np.array_equal(of[-2], of[-1]):
        return x
    unlike = np.flatnonzero((of != of[-1]).reshape(size, -1).any(1))
    end = unlike[-1] + 2 if len(unlike) else 1
    return x[..., :end] if axis == -1 else x[..., :end, :]


def _repeated(y: Array, axis: int, size: int) -> Array:
    """The last along an axis again and again, until there are so many."""
    missing = size - y.shape[axis]
    last = y[..., -1:] if axis == -1 else y[..., -1:, :]
    return np.concatenate((y, np.repeat(last, missing, axis)), axis) if missing else y


def _run(w: Rows, x: Array, y: Array, overflow: Overflow, threads: Threads | None) -> None:
    outer, inner = w.shape
    if x.ndim != 2 or x.shape[0] != inner or x.dtype not in (np.float16, np.float32):
        raise ShapeError("product_sum", "not a right side", got=_described(x), want=f"[{inner},S]")
    half = narrow(x) if x.dtype == np.float32 else x
    is_sticky, todo = overflow == "sticky", np.empty(y.shape, np.bool_)
    if x.shape[1] <= THIN_COLUMNS:
        turned = bits(half.T)
        left_over = thin(w.left, w.longest, turned, y, todo, sticky=is_sticky, threads=threads)
        is_done = not left_over
    else:
        _wide(w, half, y, todo, is_sticky, threads)
        is_done = not todo.any()
        turned = bits(half.T) if not is_done else half
    if is_done:
        return

    def part(i: int, parts: int) -> None:
        here = slice(i * outer // parts, (i + 1) * outer // parts)
        kernels.mend(w.left.bits[here], turned, y[here], todo[here], is_sticky)

    _deal(part, outer * inner * x.shape[1], threads)


def _wide(
    w: Rows, x: Array, y: Array, todo: Array, is_sticky: bool, threads: Threads | None
) -> None:
    inner, columns = x.shape
    panels, groups = -(-columns // PANEL), -(-w.shape[0] // ROWS)
    right = kernels.Panels(
        bits(x),
        np.zeros(panels * inner * PANEL, np.float32),
        np.zeros((panels, w.left.reach.shape[1]), np.float32),
        np.zeros(columns, np.bool_),
    )

    def pack(i: int, parts: int) -> None:
        kernels.pack_panels(right, i * panels // parts, (i + 1) * panels // parts)

    def part(i: int, parts: int) -> None:
        begin, end = i * groups // parts, (i + 1) * groups // parts
        kernels.wide_rows(w.left, right, y, todo, is_sticky, begin, end)

    _deal(pack, inner * columns * 32, threads)  # which is what packing costs
    _deal(part, y.size * inner, threads)


def _deal(part: Callable[[int, int], None], products: int, threads: Threads | None) -> None:
    """Do all parts of some work, as many as it is worth."""
    parts = min(PARTS, 1 + products // PART)
    if threads is None or parts == 1:
        for i in range(parts):
            part(i, parts)
    else:
        threads.each(lambda i: part(i, parts), range(parts))


def _described(x: Array) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"
