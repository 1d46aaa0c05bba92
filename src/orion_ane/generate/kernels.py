"""The programs of one model for one target, each compiled when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from orion_ane.ane.targets import Target
from orion_ane.ane.targets import target as find_target
from orion_ane.compiler import compile as compile_graph
from orion_ane.generate.kept import Kept
from orion_ane.generate.kv_cache import capacities
from orion_ane.generate.packing import Packed
from orion_ane.ir import Graph
from orion_ane.lora.inject import with_adapters
from orion_ane.mil import Program, WeightFile
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.ops import Weight

MAX_LANES = 512


@dataclass(frozen=True)
class Kernel:
    """A program of a model, and the bytes of weights that one evaluation of it reads."""

    program: Program
    weight_bytes: int


@dataclass(frozen=True)
class Bucket:
    """The sizes of a body: positions that a run computes, and earlier ones that it may see."""

    lanes: int
    cached: int

    def __str__(self) -> str:
        return f"{self.lanes}x{self.cached}"


class Kernels:
    """Body and head programs by bucket.

    Attributes:
        decoder: the model.
        precision: the element types of the programs.
        min_lanes: the fewest positions a run computes; 32 on a device whose rows are 64 bytes.
        slices: the layers that one body program holds, in order.
        host_tensors: what the host itself looks up.
        compiled: how many programs were compiled, rather than found on the disk.
    """

    def __init__(
        self,
        decoder: Decoder,
        weights: Packed,
        *,
        precision: Precision,
        target: Target | str | None = None,
        min_lanes: int = 1,
        kept: Kept | None = None,
    ) -> None:
        """Nothing is compiled yet; without a target it is for no device, and `kept` on disk."""
        self.decoder, self.precision, self.min_lanes = decoder, precision, min_lanes
        self.slices, self.host_tensors = weights.slices, weights.host
        self.compiled = 0
        self._weights, self._kept = weights, kept
        self._target = find_target(target) if isinstance(target, str) else target
        self._kernels: dict[tuple[object, ...], Kernel] = {}

    def lanes_for(self, count: int) -> int:
        """The bucket for a run over `count` positions, which may be fewer than that.

        Each is twice the one before, so that less than half of what is computed is thrown away.
        """
        bucket = self.min_lanes if count <= self.min_lanes else 32
        while bucket < min(count, MAX_LANES):
            bucket *= 2
        return bucket

    def buckets(self) -> Iterator[Bucket]:
        """Every bucket that a run may ask for."""
        lanes = dict.fromkeys(self.lanes_for(n) for n in range(1, MAX_LANES + 1))
        for cached in capacities(self.decoder.config.context):
            yield from (Bucket(n, cached) for n in lanes)
        yield from (Bucket(n, 0) for n in lanes if n > self.min_lanes)

    def named(self, buckets: Iterable[Bucket]) -> Iterator[tuple[str, Program]]:
        """The programs of these buckets, each with a name, made one by one and not kept."""
        wanted = list(buckets)
        for bucket in wanted:
            for layers in self.slices:
                name = f"body-{layers.start:02d}-{layers.stop - 1:02d}-{bucket}"
                yield name, self.body(layers, bucket.lanes, bucket.cached).program
                self._kernels.clear()
        for lanes in dict.fromkeys(bucket.lanes for bucket in wanted):
            yield f"head-{lanes}", self.head(lanes).program
            self._kernels.clear()

    def body(self, layers: range, lanes: int, cached: int, *, rank: int = 0) -> Kernel:
        """The program of some layers in one bucket, with ports for adapters of a rank, if any."""

        def build() -> Graph:
            graph = self.decoder.body(layers, lanes=lanes, cached=cached, precision=self.precision)
            return with_adapters(graph, rank) if rank else graph

        sizes = ("body", layers.start, lanes, cached, *_ported(rank))
        return self._get(sizes, self._weights.bodies[layers.start], build)

    def head(self, lanes: int, *, rank: int = 0, file: WeightFile | None = None) -> Kernel:
        """The program of the head in one bucket, with ports as a body's; `file`: other weights."""

        def build() -> Graph:
            graph = self.decoder.head(lanes=lanes, precision=self.precision)
            return with_adapters(graph, rank) if rank else graph

        sizes = ("head", 0, lanes, 0, *_ported(rank))
        return self._get(sizes, self._weights.head if file is None else file, build)

    @property
    def head_file(self) -> WeightFile:
        """The weights of the head."""
        return self._weights.head

    def _get(
        self, sizes: tuple[object, ...], file: WeightFile, build: Callable[[], Graph]
    ) -> Kernel:
        is_own = sizes[0] != "head" or file is self._weights.head
        key = sizes if is_own else (*sizes, file.digest)
        if key not in self._kernels:

            def compiled() -> tuple[Program, int]:
                graph = build()
                leaves = (node for node in graph.nodes if isinstance(node.op, Weight))
                reads = sum(leaf.type.nbytes for leaf in leaves)
                return compile_graph(graph, file, target=self._target), reads

            if self._kept is None:
                program, reads, was_kept = *compiled(), False
            else:
                program, reads, was_kept = self._kept.program(sizes, self._target, file, compiled)
            self._kernels[key] = Kernel(program, reads)
            self.compiled += not was_kept
        return self._kernels[key]


def _ported(rank: int) -> tuple[object, ...]:
    """What ports for adapters add to a program's sizes: nothing where there are none."""
    return ("rank", rank) if rank else ()
