"""The programs of one model on one device, compiled when first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.mil import WeightFile, pack
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Weight
from orion_ane.runtime.backend import Backend, Executable
from orion_ane.types import Array

MAX_LANES = 512


@dataclass(frozen=True)
class Kernel:
    """A loaded program and what one evaluation of it reads."""

    executable: Executable
    weight_bytes: int


class Programs:
    """Body and head programs by bucket, over one weight file that all of them share.

    Attributes:
        min_lanes: the fewest positions a run computes; 32 on a device whose rows are 64 bytes.
        layers_per_program: how many layers one body program holds.
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
    ) -> None:
        self.decoder, self.backend, self.precision = decoder, backend, precision
        self.min_lanes = min_lanes
        count = decoder.config.layers
        step = layers_per_program or count
        self.slices = [range(i, min(i + step, count)) for i in range(0, count, step)]
        self.file: WeightFile = pack(decoder.weights(tensors, precision))
        self._kernels: dict[tuple[str, int, int, int], Kernel] = {}

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
            lambda: self.decoder.body(layers, lanes=lanes, cached=cached, precision=self.precision),
        )

    def head(self, lanes: int) -> Kernel:
        """The program of the head in one bucket."""
        return self._get(
            ("head", 0, lanes, 0), lambda: self.decoder.head(lanes=lanes, precision=self.precision)
        )

    @property
    def loaded(self) -> int:
        """How many programs are loaded."""
        return len(self._kernels)

    def close(self) -> None:
        """Unload everything."""
        for kernel in self._kernels.values():
            kernel.executable.close()
        self._kernels.clear()

    def _get(self, key: tuple[str, int, int, int], build: Callable[[], Graph]) -> Kernel:
        if key not in self._kernels:
            graph = build()
            program = compile_graph(graph, self.file)
            size = sum(n.type.nbytes for n in graph.nodes if isinstance(n.op, Weight))
            self._kernels[key] = Kernel(self.backend.compile(program), size)
        return self._kernels[key]


def as_lanes(columns: Array, lanes: int, dtype: np.dtype[np.generic]) -> Array:
    """[S, C] as a packed port [1, C, 1, lanes], the spare lanes zero."""
    port = np.zeros((1, columns.shape[1], 1, lanes), dtype)
    port[0, :, 0, : columns.shape[0]] = columns.T
    return port
