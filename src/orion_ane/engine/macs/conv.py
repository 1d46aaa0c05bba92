"""Convolutions with constant weights as the ANE computes them: direct, or M5's Winograd form.

Zero padding contributes nothing, as products with 0 are 0.  What is reproduced of published
values has stride 1, one group and no bias (ane-numerics, section 2); the rest follows the same
rule, approximately known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from orion_ane.ane.numerics import ConvForm, Overflow
from orion_ane.ane.rounding import away
from orion_ane.engine.macs.products import Rows, exact_sums, product_sum, rows
from orion_ane.engine.threads import Threads
from orion_ane.errors import ShapeError
from orion_ane.types import Array

COLUMNS = 4096  # of one product: bounds the copies of x that it takes


@dataclass(frozen=True, slots=True, eq=False)
class ConvWeight:
    """A constant weight [O,C,h,w] of one group, measured in the form that it is used in."""

    parts: tuple[Rows, ...]
    """The one left side of a direct convolution, or the four of Winograd's."""
    shape: tuple[int, int, int, int]
    form: ConvForm


def conv_weight(w: Array, form: ConvForm = "direct") -> ConvWeight:
    """Prepare a weight w [O,C,h,w] of fp16.

    Raises:
        ShapeError: not such a weight, or for Winograd's form not 3×3.
    """
    if w.ndim != 4 or w.dtype != np.float16:
        raise ShapeError(
            "conv", "not a weight", got=f"{w.dtype}{list(w.shape)}", want="fp16[O,C,h,w]"
        )
    outer, _, height, width = w.shape
    if form == "direct":
        return ConvWeight((rows(w.reshape(outer, -1)),), w.shape, form)
    if (height, width) != (3, 3):
        raise ShapeError("conv", "no Winograd form", got=f"{height}x{width}", want="3x3")
    g0, g1, g2 = np.moveaxis(w.astype(np.float64), 3, 0)  # [O,C,3] each
    transformed = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
    return ConvWeight(tuple(rows(away(u).reshape(outer, -1)) for u in transformed), w.shape, form)


def conv(
    x: Array,
    w: ConvWeight,
    *,
    overflow: Overflow,
    bias: Array | None = None,
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    threads: Threads | None = None,
) -> Array:
    """y [N,O,H',W'] of x [N,C,H,W] of fp16.

    Args:
        x: fp16.
        w: what `conv_weight` made of it.
        overflow: as in `product_sum`; partial sums go through channels, then rows and columns of
            the kernel.  In Winograd's form, each of the four sums is watched.
        bias: [O], added to the exact sums before they are rounded; where devices do is not known.
        pad: zeros before and after, in height and width.
        strides: of height and width.
        dilations: likewise.
        threads: who computes.

    Raises:
        ShapeError: other types, sizes that do not fit, or a stride or dilation in Winograd's form.
    """
    _, channels, height, width = w.shape
    if x.ndim != 4 or x.dtype != np.float16 or x.shape[1] != channels:
        got, want = f"{x.dtype}{list(x.shape)}", f"fp16[N,{channels},H,W]"
        raise ShapeError("conv", "not an input of this weight", got=got, want=want)
    reach = [(size - 1) * d + 1 for size, d in zip((height, width), dilations, strict=True)]
    padded = np.pad(x, ((0, 0), (0, 0), pad[:2], pad[2:]))
    if padded.shape[2] < reach[0] or padded.shape[3] < reach[1]:
        raise ShapeError(
            "conv", "the weight is larger than its input", got=reach, want=padded.shape[2:]
        )
    if w.form == "winograd":
        if strides != (1, 1) or dilations != (1, 1):
            raise ShapeError("conv", "no Winograd form", got=f"strides {strides}", want="stride 1")
        return np.stack([_winograd(image, w, bias, overflow, threads) for image in padded])
    windows = sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.stack([_direct(image, w, bias, overflow, threads) for image in windows])


def rounded_sums(sums: Array, bias: Array | None) -> Array:
    """Exact sums [O,...] in fp64 plus a bias [O], rounded to fp16 as a product-sum is."""
    if bias is not None:
        sums = sums + bias.astype(np.float64).reshape(-1, *(1,) * (sums.ndim - 1))
    return away(np.where(np.isnan(sums), 0.0, sums), ceiling=2.0**15)  # NaN: inf - inf


def _direct(
    windows: Array, w: ConvWeight, bias: Array | None, overflow: Overflow, threads: Threads | None
) -> Array:
    """One image, as windows [C,H',W',h,w]."""
    high, wide = windows.shape[1:3]
    y = np.empty((w.shape[0], high, wide), np.float16)
    band = max(1, COLUMNS // wide)
    for top in range(0, high, band):
        part = windows[:, top : top + band].transpose(0, 3, 4, 1, 2)  # [C,h,w,band,W']
        x = part.reshape(-1, part.shape[3] * wide)
        if bias is None:
            sums = product_sum(w.parts[0], x, overflow=overflow, threads=threads)
        else:
            exact = exact_sums(w.parts[0], x, overflow=overflow, threads=threads)
            sums = rounded_sums(exact, bias)
        y[:, top : top + band] = sums.reshape(w.shape[0], -1, wide)
    return y


def _winograd(
    padded: Array, w: ConvWeight, bias: Array | None, overflow: Overflow, threads: Threads | None
) -> Array:
    """One padded image [C,H,W] by F(2,3) along the width; the kernel's rows are done directly."""
    outer = w.shape[0]
    high, wide = padded.shape[1] - 2, padded.shape[2] - 2
    pairs = -(-wide // 2)
    d = np.pad(padded, ((0, 0), (0, 0), (0, 2 * pairs - wide))).astype(np.float64)
    d0, d1, d2, d3 = (d[:, :, i : i + 2 * pairs : 2] for i in range(4))
    inputs = [away(v) for v in (d0 - d2, d1 + d2, d2 - d1, d1 - d3)]  # [C,H,pairs] each
    y = np.empty((outer, high, 2 * pairs), np.float16)
    band = max(1, COLUMNS // pairs)
    for top in range(0, high, band):
        count = min(band, high - top)
        m = []
        for u, v in zip(w.parts, inputs, strict=True):
            lines = sliding_window_view(v[:, top : top + count + 2], 3, axis=1)  # [C,count,pairs,3]
            x = lines.transpose(0, 3, 1, 2).reshape(-1, count * pairs)
            sums = exact_sums(u, x, overflow=overflow, threads=threads)
            m.append(sums.reshape(outer, count, pairs))
        with np.errstate(invalid="ignore"):
            even, odd = m[0] + m[1] + m[2], m[1] - m[2] - m[3]
        for start, sums in enumerate((even, odd)):
            y[:, top : top + count, start::2] = rounded_sums(sums, bias)
    return y[:, :, :wide]
