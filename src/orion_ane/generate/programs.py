"""The programs of one model on one device, compiled when first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.mil import Program, WeightFile, pack
from orion_ane.mil.blob import MAX_WEIGHT_BYTES
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Weight
from orion_ane.runtime.backend import Backend, Executable
from orion_ane.runtime.cache import ProgramCache
from orion_ane.types import Array

MAX_LANES = 512
FILE_ROOM = MAX_WEIGHT_BYTES - (1 << 20)
"""What the weights of one program may take; the rest is for the file's own headers."""


@dataclass(frozen=True)
class Kernel:
    """A program of a model, and the bytes of weights that one evaluation of it reads."""

    program: Program
    weight_bytes: int


class Programs:
    """Body and head programs by bucket; each stretch of layers, and the head, has one weight file.

    Attributes:
        min_lanes: the fewest positions a run computes; 32 on a device whose rows are 64 bytes.
        slices: the layers that one body program holds, in order.
        host_tensors: what the host itself looks up.
    """

    def __init__(
        self,
        decoder: Decoder,
        tensors: Mapping[str, Array],
        backend: Backend,
        *,
        precision: Precision,
        min_lanes: int = 1,
        layers_per_program: int | None = None,
        file_room: int = FILE_ROOM,
    ) -> None:
        """Lay out a model's weights; nothing is compiled yet.

        Args:
            decoder: the model.
            tensors: its canonical tensors, which need not outlive this call.
            backend: the device.
            precision: the element types of the programs.
            min_lanes: see the class.
            layers_per_program: None is as many as one weight file holds (case W11).
            file_room: the bytes of weights that one file may hold.
        """
        self.decoder, self.precision, self.min_lanes = decoder, precision, min_lanes
        self._target = backend.target
        self._cache = ProgramCache(backend)
        self._kernels: dict[tuple[str, int, int, int], Kernel] = {}
        weights = decoder.weights(tensors, precision)
        by_layer = [_of_layer(weights, i) for i in range(decoder.config.layers)]
        self.slices = _slices(by_layer, layers_per_program, file_room)
        self._files: dict[int, WeightFile] = {}
        for layers in self.slices:
            labels = [label for i in layers for label in by_layer[i]]
            self._files[layers.start] = pack({label: weights.pop(label) for label in labels})
        self._head_file = pack(weights)
        self.host_tensors = {name: tensors[name] for name in decoder.host_names}

    def lanes_for(self, count: int) -> int:
        """The bucket for a run over `count` positions, which may be fewer than that."""
        bucket = self.min_lanes if count <= self.min_lanes else 32
        while bucket < min(count, MAX_LANES):
            bucket *= 4
        return bucket

    def body(self, layers: range, lanes: int, cached: int) -> Kernel:
        """The program of some layers in one bucket."""
        return self._get(
            ("body", layers.start, lanes, cached),
            self._files[layers.start],
            lambda: self.decoder.body(layers, lanes=lanes, cached=cached, precision=self.precision),
        )

    def head(self, lanes: int) -> Kernel:
        """The program of the head in one bucket."""
        return self._get(
            ("head", 0, lanes, 0),
            self._head_file,
            lambda: self.decoder.head(lanes=lanes, precision=self.precision),
        )

    def loaded(self, kernel: Kernel) -> Executable:
        """The program on the device, to be used at once: another may take its place."""
        return self._cache.get(kernel.program)

    def __len__(self) -> int:
        """How many programs are loaded."""
        return len(self._cache)

    def close(self) -> None:
        """Unload everything."""
        self._cache.close()

    def _get(
        self, key: tuple[str, int, int, int], file: WeightFile, build: Callable[[], Graph]
    ) -> Kernel:
        if key not in self._kernels:
            graph = build()
            size = sum(node.type.nbytes for node in graph.nodes if isinstance(node.op, Weight))
            self._kernels[key] = Kernel(compile_graph(graph, file, target=self._target), size)
        return self._kernels[key]


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
