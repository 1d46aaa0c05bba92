"""Where a model's tensors lie in its programs' weights, and the way back for their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.types import Array, DType

PROBE = Precision(DType.FP32, DType.FP32)


@dataclass(frozen=True, eq=False)
class Place:
    """A weight of the programs as a part of a tensor: weight[i, j] is tensor[rows[i], columns[j]].

    Attributes:
        tensor: the canonical name.
        rows: of the tensor, in the weight's order.
        columns: likewise; None for a vector.
    """

    tensor: str
    rows: slice | Array
    columns: slice | Array | None

    def add(self, gradient: Array, to: Array) -> None:
        """Add the gradient of the weight to that of the tensor, in place."""
        if self.columns is None:
            to[self.rows] += gradient.reshape(-1)
            return
        part = gradient.reshape(gradient.shape[:2])
        if isinstance(self.rows, slice) or isinstance(self.columns, slice):
            to[self.rows, self.columns] += part
        else:
            to[np.ix_(self.rows, self.columns)] += part


def places(decoder: Decoder, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Place]:
    """The place of each weight that is made of tensors of these names and shapes, by its label.

    The decoder is asked, not known: tensors whose values are the numbers of their own rows, and of
    their columns, come back in the order that it puts them in.  fp32 counts to 2²⁴ exactly, far
    beyond any axis.
    """
    found: dict[str, Place] = {}
    for name, shape in shapes.items():
        numbers = np.arange(max(shape), dtype=np.float32)
        if len(shape) == 1:
            for label, weight in decoder.weights({name: numbers}, PROBE).items():
                found[label] = Place(name, _indices(weight.reshape(-1)), None)
            continue
        rows = np.broadcast_to(numbers[: shape[0], None], shape)
        columns = np.broadcast_to(numbers[None, : shape[1]], shape)
        by_row = decoder.weights({name: rows}, PROBE)
        by_column = decoder.weights({name: columns}, PROBE)
        for label, weight in by_row.items():
            second = by_column[label][0, :, 0, 0]
            found[label] = Place(name, _indices(weight[:, 0, 0, 0]), _indices(second))
    return found


def _indices(numbers: Array) -> slice | Array:
    """Whole numbers as an index, a stretch of neighbours as a slice, which copies nothing."""
    whole = numbers.astype(np.intp)
    first = int(whole[0])
    is_stretch = np.array_equal(whole, np.arange(first, first + len(whole)))
    return slice(first, first + len(whole)) if is_stretch else whole


def zeros(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """An fp32 zero for every tensor, for gradients to be added to."""
    return {name: np.zeros(array.shape, np.float32) for name, array in tensors.items()}


def masters(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Copies of a model's tensors in fp32, to be written to in place."""
    return {name: np.array(array, np.float32) for name, array in tensors.items()}
