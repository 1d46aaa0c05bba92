"""A model's weights in files as programs read them: one a stretch of layers, one for the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orion_ane.host.pages import forget
from orion_ane.mil import WeightFile, pack
from orion_ane.mil.blob import MAX_WEIGHT_BYTES
from orion_ane.models.decoder import Decoder, Rows
from orion_ane.nn.blocks import Precision
from orion_ane.types import Array

FILE_ROOM = MAX_WEIGHT_BYTES - (1 << 20)
"""What the weights of one program may take; the rest is for the file's own headers."""

ROWS = 1024  # of a table, compared at a time


@dataclass(frozen=True, eq=False)
class Packed:
    """The weights of a model on one kind of device.

    Attributes:
        slices: the layers that one body program holds, in order.
        bodies: the weight file of each slice, by its first layer.
        head: the weight file of the head.
        host: what the host itself looks up.
    """

    slices: list[range]
    bodies: Mapping[int, WeightFile]
    head: WeightFile
    host: Mapping[str, Rows]


def packed(
    decoder: Decoder,
    tensors: Mapping[str, Array],
    precision: Precision,
    *,
    layers_per_program: int | None = None,
    file_room: int = FILE_ROOM,
) -> Packed:
    """A model's weights, laid out.

    Args:
        decoder: the model.
        tensors: its canonical tensors, which need not outlive this call.
        precision: the element types of the programs.
        layers_per_program: None is as many as one weight file holds (case W11).
        file_room: the bytes of weights that one file may hold.
    """
    weights = decoder.weights(tensors, precision)
    most = layers_per_program
    found = packed_weights(decoder, weights, layers_per_program=most, file_room=file_room)
    host = {name: _once(name, tensors[name], found.head) for name in decoder.host_names}
    return replace(found, host=host)


def packed_weights(
    decoder: Decoder,
    weights: dict[str, Array],
    *,
    layers_per_program: int | None = None,
    file_room: int = FILE_ROOM,
) -> Packed:
    """Weights by label, laid out, and taken out of `weights`; the host has nothing yet."""
    by_layer = [_of_layer(weights, i) for i in range(decoder.config.layers)]
    slices = _slices(by_layer, layers_per_program, file_room)
    bodies: dict[int, WeightFile] = {}
    for layers in slices:
        labels = [label for i in layers for label in by_layer[i]]
        bodies[layers.start] = pack(_Taken(weights, labels))
    return Packed(slices, bodies, pack(_Taken(weights, list(weights))), {})


class _Taken(Mapping[str, Array]):
    """Arrays that are taken out of others as they are asked for, so that nobody has them twice."""

    def __init__(self, arrays: dict[str, Array], labels: Sequence[str]) -> None:
        self._arrays, self._labels = arrays, labels

    def __getitem__(self, label: str) -> Array:
        return self._arrays.pop(label)

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


def _once(name: str, tensor: Array, head: WeightFile) -> Array:
    """A tensor as the head's file has it, if that has the same, so that it is in memory once."""
    if name not in head.types or head.types[name].elements != tensor.size:
        return tensor
    found = head.array(name)
    same = found.dtype == tensor.dtype and _is_same(found.reshape(tensor.shape), tensor)
    return found.reshape(tensor.shape) if same else tensor


def _is_same(one: Array, other: Array) -> bool:
    """Whether two tensors are equal, some rows at a time: a comparison takes memory too."""
    for at in range(0, len(one), ROWS):
        rows = other[at : at + ROWS]
        if not np.array_equal(one[at : at + ROWS], rows):
            return False
        forget(rows)
    return True


def _of_layer(weights: Mapping[str, Array], layer: int) -> dict[str, int]:
    """The sizes of a layer's weights, by label."""
    prefix = f"layers.{layer}."
    return {label: array.nbytes for label, array in weights.items() if label.startswith(prefix)}


def _slices(by_layer: list[dict[str, int]], most: int | None, room: int) -> list[range]:
    """Stretches of layers, each as long as `most` and the room of a file allow."""
    slices: list[range] = []
    start, size = 0, 0
    for i, labels in enumerate(by_layer):
        layer = sum(labels.values())
        if i > start and (i - start == most or size + layer > room):
            slices.append(range(start, i))
            start, size = i, 0
        size += layer
    return [*slices, range(start, len(by_layer))]
