"""A stage on a device: its two programs, loaded, and the one weight file that both read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from orion_ane.compiler import compile as compile_graph
from orion_ane.mil import WeightFile, pack
from orion_ane.mil.program import Program
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.portable import PortableProgram
from orion_ane.runtime.ranges import ranges, shows_ranges
from orion_ane.train.room import Room
from orion_ane.train.scales import Extent, largest, least_product, typical
from orion_ane.train.stages import Stage, labels_of, with_inputs
from orion_ane.train.updates import Updates
from orion_ane.types import Array


class Placed:
    """A stage, ready to run in both directions.

    Attributes:
        stage: what is computed.
        updates: how new weights get there, and whose device it is on.

    Args:
        stage: likewise.
        weights: its programs' weights, by label.
        updates: likewise.
        learnt: the labels of all weights that are learnt.
        room: lends the memory for what the programs give.

    Raises:
        LimitError: a program breaks limits of the device's target.
        BackendError: the device refuses it, or has no room.
    """

    def __init__(
        self,
        stage: Stage,
        weights: Mapping[str, Array],
        updates: Updates,
        learnt: Collection[str],
        room: Room,
    ) -> None:
        self.stage, self.updates = stage, updates
        self._room = room
        self._learnt = frozenset(learnt)
        self._sizes = self._typical(weights)
        device = updates.device
        graphs = [stage.forward, stage.backward]
        # What a program reads as inputs, by direction; empty where it has weights of its own.
        self._read: list[dict[str, Array]] = [{}, {}]
        if updates.as_inputs:
            graphs = [with_inputs(graph, self._learnt) for graph in graphs]
            self._feed(weights)
        kept = [label for label in stage.labels if label in labels_of(*graphs)]
        self._file: WeightFile | None = None
        if kept:
            self._file = file = pack({label: weights[label] for label in kept})
            programs = [compile_graph(graph, file, target=device.target) for graph in graphs]
        else:
            programs = [compile_graph(graph, target=device.target) for graph in graphs]
        self._loaded: list[Executable] = []
        try:
            for program in programs:
                self._loaded.append(device.compile(program))
        except BaseException:
            self.close()
            raise

    @property
    def loaded(self) -> tuple[Executable, ...]:
        """What runs forward, and what runs backward."""
        return tuple(self._loaded)

    def read(self, way: int) -> Mapping[str, Array]:
        """The weights that a kernel reads as inputs, as they are now: 0 is forward, 1 back."""
        return self._read[way]

    def forward(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the forward kernel, kept values among them; they may be lent."""
        return self._run(0, inputs)

    def _run(self, way: int, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a kernel, in memory that is lent where the device can write there."""
        loaded, fed = self._loaded[way], {**inputs, **self._read[way]}
        if isinstance(loaded, PortableProgram):
            outputs = {port.name: self._room.take(port.of) for port in loaded.program.outputs}
            run = loaded.bind(fed, outputs)
            if run is not None:
                run()
                return outputs
            self._room.leave(outputs.values())
        return loaded.run(fed)

    def back(
        self, known: Mapping[str, Array], seeds: Mapping[str, Array], scale: float
    ) -> dict[str, Array]:
        """All that the backward kernel reads and gives, which may be lent.

        Args:
            known: what was kept of the way there.
            seeds: the cotangents in fp32, without any scale.
            scale: a power of two, which multiplies whatever flows back.
        """
        every = {**known, **self.cotangents(seeds, scale)}
        inputs = {name: every[name] for name in self.stage.backward.inputs}
        return every | self._run(1, inputs)

    def cotangents(self, seeds: Mapping[str, Array], scale: float) -> dict[str, Array]:
        """What the backward kernel reads of seeds in fp32: scaled, and of its own type."""
        with np.errstate(all="ignore"):
            scaled = seeds if scale == 1 else {n: a * np.float32(scale) for n, a in seeds.items()}
            dtype = self.stage.dtype.numpy
            return {n: array.astype(dtype, copy=False) for n, array in scaled.items()}

    def passed_on(self, every: Mapping[str, Array], scale: float) -> dict[str, Array]:
        """The cotangents for the stage before, in fp32 and without any scale."""
        with np.errstate(all="ignore"):
            dx = every[f"d_{self.stage.takes}"].astype(np.float32, copy=False)
            return {"d_hidden": dx if scale == 1 else dx / np.float32(scale)}

    def tried(
        self, known: Mapping[str, Array], seeds: Mapping[str, Array], scale: float
    ) -> tuple[dict[str, Array], Extent]:
        """`back`, and what it came to; of a stage in fp32, nothing is measured."""
        stage = self.stage
        every = self.back(known, seeds, scale)
        if not stage.is_half:
            return every, Extent(0.0, math.inf)
        most = [largest(every[name]) for name in (*seeds, *stage.backward.outputs)]
        inner = self._flow({name: every[name] for name in stage.backward.inputs}, seeds)
        pairs = ((pair.weight, pair.dy) for pair in stage.pairs)
        return every, Extent(max(inner, *most), least_product(pairs, self._sizes, every))

    def _flow(self, inputs: Mapping[str, Array], cotangents: Iterable[str]) -> float:
        """The largest magnitude of whatever flows back inside; 0 where the device hides it.

        All of it is linear in the cotangents: it is 0 where they are.
        """
        loaded = self._loaded[1]
        if not shows_ranges(loaded):
            return 0.0
        fed = {**inputs, **self._read[1]}
        nothing = {name: np.zeros_like(fed[name]) for name in cotangents}
        pairs = zip(
            ranges(loaded, fed).ranges, ranges(loaded, {**fed, **nothing}).ranges, strict=True
        )
        flowing = [
            range_ for range_, without in pairs if not (without.largest or without.not_finite)
        ]
        if any(range_.not_finite for range_ in flowing):
            return math.inf
        return max((range_.largest for range_ in flowing), default=0.0)

    def renew(self, weights: Mapping[str, Array]) -> None:
        """Have both programs run with new weights.

        Raises:
            BackendError: the device cannot, or has no room.
        """
        self._sizes = self._typical(weights)
        if self.updates.as_inputs:
            self._feed(weights)
            return
        self._file = file = pack({label: weights[label] for label in self.stage.labels})
        for i, loaded in enumerate(self._loaded):
            old: Program = loaded.program
            if old.weights:  # else it reads none
                files, digests = {file.path: file.data}, {file.path: lambda: file.digest}
                new = replace(old, weights=files, digests=digests)
                self._loaded[i] = self.updates.renew(loaded, new)

    def damaged(self, weights: Mapping[str, Array]) -> str | None:
        """The first weight that the programs were given otherwise than it is, by label."""
        for given in self._read:
            for label, array in given.items():
                if not _are_same(array, weights[label]):
                    return label
        if self._file is not None:
            for label in self._file.offsets:
                if not _are_same(self._file.array(label), weights[label]):
                    return label
        return None

    def _typical(self, weights: Mapping[str, Array]) -> dict[str, float]:
        """How large the weights are whose products need a scale."""
        pairs = self.stage.pairs if self.stage.is_half else ()
        return {pair.weight: typical(weights[pair.weight]) for pair in pairs}

    def _feed(self, weights: Mapping[str, Array]) -> None:
        """Keep the weights that each program reads, as they are now."""
        for i, graph in enumerate((self.stage.forward, self.stage.backward)):
            fed = (label for label in labels_of(graph) if label in self._learnt)
            self._read[i] = {label: weights[label] for label in fed}
        self.updates.costs.bytes_written += sum(array.nbytes for array in self._read[0].values())

    def close(self) -> None:
        """Unload both programs."""
        for loaded in self._loaded:
            loaded.close()


def _are_same(one: Array, other: Array) -> bool:
    """Whether two arrays are the same bits: no number equals one that is none."""
    a, b = (np.ascontiguousarray(array).reshape(-1) for array in (one, other))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return a.dtype == b.dtype and np.array_equal(a.view(bits), b.view(bits))
