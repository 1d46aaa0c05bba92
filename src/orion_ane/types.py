"""DType and TensorType, which print as they are written in messages: `fp16[1,768,1,64]`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from orion_ane.errors import ShapeError

Array = NDArray[Any]

MAX_RANK = 5  # Core ML's limit, and the ANE's (ane-facts: MIL reference, "rank limit 5")
MAX_ELEMENTS = 1 << 40  # no sane tensor is larger; keeps sizes of hostile types in range


class DType(Enum):
    """An element type of MIL that a value of a graph may have, under its MIL name."""

    FP16 = "fp16"
    FP32 = "fp32"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    BOOL = "bool"

    def __str__(self) -> str:
        return self.value

    __repr__ = __str__

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type with the same values."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        """Whether this is fp16 or fp32."""
        return self in (DType.FP16, DType.FP32)

    @classmethod
    def of(cls, dtype: DTypeLike) -> DType:
        """The DType of a numpy type.

        Raises:
            ShapeError: MIL has no such element type (float64, int64, …).
        """
        found = _FROM_NUMPY.get(np.dtype(dtype))
        if found is None:
            raise ShapeError(
                "dtype", "not an element type of MIL", got=np.dtype(dtype), want=list(cls)
            )
        return found


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FP16: np.dtype(np.float16),
    DType.FP32: np.dtype(np.float32),
    DType.INT8: np.dtype(np.int8),
    DType.UINT8: np.dtype(np.uint8),
    DType.INT16: np.dtype(np.int16),
    DType.UINT16: np.dtype(np.uint16),
    DType.INT32: np.dtype(np.int32),
    DType.UINT32: np.dtype(np.uint32),
    DType.BOOL: np.dtype(np.bool_),
}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items()}


@dataclass(frozen=True, slots=True)
class TensorType:
    """An element type and a static shape; rank 0 is a scalar.

    Raises:
        ShapeError: a rank over 5, a size below 1, or an absurd number of elements.
    """

    dtype: DType
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_RANK:
            raise ShapeError("type", "rank too high", got=self, want=f"at most {MAX_RANK}")
        if min(self.shape, default=1) < 1:
            raise ShapeError("type", "sizes start at 1", got=self)
        if self.elements > MAX_ELEMENTS:
            raise ShapeError("type", "too many elements", got=self, want=f"at most {MAX_ELEMENTS}")

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a packed value."""
        return self.elements * self.dtype.itemsize

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape of another element type."""
        return TensorType(dtype, self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """The same element type in another shape."""
        return TensorType(self.dtype, shape)

    @classmethod
    def of(cls, value: Array) -> TensorType:
        """The type of an array."""
        return cls(DType.of(value.dtype), tuple(int(n) for n in value.shape))
