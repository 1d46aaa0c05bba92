"""Matrices of int8 codes: as GGUF's Q8_0 stores them, or made of others here.

A code times its scale is the number; a scale serves a block of a row, or all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from orion_ane.errors import CheckpointError
from orion_ane.types import Array

BLOCK = 32  # codes of one scale in Q8_0
LARGEST = 127
CHUNK = 1 << 20  # numbers that are quantised at once

Q8_0 = np.dtype([("scale", "<f2"), ("codes", "i1", (BLOCK,))])
"""A block as GGUF stores it: 34 bytes."""


@dataclass(frozen=True, eq=False)
class Quantised:
    """A matrix [O, I].

    Attributes:
        codes: int8 [O, blocks, codes of a block]; it may be a view of a file.
        scale: fp16 or fp32 [O, blocks].
    """

    codes: Array
    scale: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, blocks, block = self.codes.shape
        return rows, blocks * block

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scale.nbytes

    def __getitem__(self, rows: Any) -> Array:
        """Some rows as fp32 numbers."""
        codes, scale = self.codes[rows], self.scale[rows]
        wide = codes.astype(np.float32) * scale.astype(np.float32)[..., None]
        return np.asarray(wide.reshape(*wide.shape[:-2], -1))

    def finer(self, block: int) -> Quantised:
        """The same numbers with a scale for fewer codes."""
        rows, blocks, size = self.codes.shape
        if size == block:
            return self
        codes = self.codes.reshape(rows, blocks * size // block, block)
        return Quantised(codes, np.repeat(self.scale, size // block, axis=1))


def block_of(columns: int, unit: int = 0) -> int:
    """How many codes of a row have one scale: 32, or what fits rows and units of columns."""
    return gcd(BLOCK, columns, unit)


def of_file(raw: Array, shape: tuple[int, ...]) -> Quantised:
    """The blocks of a file, as they lie there."""
    blocks = raw.view(Q8_0).reshape(shape[0], -1)
    return Quantised(blocks["codes"], blocks["scale"])


def by_channel(where: str, matrix: Array) -> Quantised:
    """A scale for each row, in fp32: its largest magnitude / 127.

    Raises:
        CheckpointError: a number is not finite.
    """
    rows, columns = matrix.shape
    codes, scale = np.empty((rows, 1, columns), np.int8), np.empty((rows, 1), np.float32)
    for part in _parts(rows, columns):
        wide = matrix[part].astype(np.float32)
        scale[part, 0] = largest = _largest(where, wide) / np.float32(LARGEST)
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.where(largest[:, None] > 0, wide / largest[:, None], 0)
        codes[part, 0] = np.clip(np.rint(near), -LARGEST, LARGEST)
    return Quantised(codes, scale)


def by_block(where: str, matrix: Array, block: int) -> Quantised:
    """A scale for each block of a row, in fp16, by the rule of Q8_0.

    Raises:
        CheckpointError: a number is not finite, or a scale too large for fp16.
    """
    rows, columns = matrix.shape
    codes = np.empty((rows, columns // block, block), np.int8)
    scale = np.empty(codes.shape[:2], np.float16)
    for part in _parts(rows, columns):
        wide = matrix[part].astype(np.float32).reshape(-1, columns // block, block)
        largest = _largest(where, wide) / np.float32(LARGEST)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            scale[part] = largest
            factor = np.where(largest > 0, 1 / largest, 0)
            near = wide * factor[..., None]
        size = np.floor(np.abs(near) + np.float32(0.5))  # halves away from zero, as the format has
        codes[part] = np.clip(np.copysign(size, near), -LARGEST, LARGEST)
    if not np.isfinite(scale).all():
        raise CheckpointError(where, "too large for blocks of int8", hint="take weights fp32")
    return Quantised(codes, scale)


def _parts(rows: int, columns: int) -> list[slice]:
    step = max(1, CHUNK // columns)
    return [slice(at, at + step) for at in range(0, rows, step)]


def _largest(where: str, wide: Array) -> Array:
    found = np.abs(wide).max(axis=-1)
    if not np.isfinite(found).all():
        raise CheckpointError(where, "numbers that are not finite have no codes")
    return np.asarray(found)
