"""A stage on a device: its two programs, loaded, and the one weight file that both read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orion_ane.compiler import compile as compile_graph
from orion_ane.mil import pack
from orion_ane.mil.program import Program
from orion_ane.runtime.backend import Executable
from orion_ane.train.stages import Stage, labels_of, with_inputs
from orion_ane.train.updates import Updates
from orion_ane.types import Array


class Placed:
    """A stage, ready to run in both directions.

    Attributes:
        stage: what is computed.
        updates: how new weights get there, and whose device it is on.

    Raises:
        LimitError: a program breaks limits of the device's target.
        BackendError: the device refuses it, or has no room.
    """

    def __init__(self, stage: Stage, weights: Mapping[str, Array], updates: Updates) -> None:
        self.stage, self.updates = stage, updates
        device = updates.device
        graphs = [stage.forward, stage.backward]
        # What a program reads as inputs, by direction; empty where it has weights of its own.
        self._read: list[dict[str, Array]] = [{}, {}]
        if updates.as_inputs:
            graphs = [with_inputs(graph) for graph in graphs]
            self._feed(weights)
            programs = [compile_graph(graph, target=device.target) for graph in graphs]
        else:
            file = pack({label: weights[label] for label in stage.labels})
            programs = [compile_graph(graph, file, target=device.target) for graph in graphs]
        self._loaded: list[Executable] = []
        try:
            for program in programs:
                self._loaded.append(device.compile(program))
        except BaseException:
            self.close()
            raise

    def forward(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the forward kernel, kept values among them."""
        return self._loaded[0].run({**inputs, **self._read[0]})

    def backward(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the backward kernel."""
        return self._loaded[1].run({**inputs, **self._read[1]})

    def renew(self, weights: Mapping[str, Array]) -> None:
        """Have both programs run with new weights.

        Raises:
            BackendError: the device cannot, or has no room.
        """
        if self.updates.as_inputs:
            self._feed(weights)
            return
        file = pack({label: weights[label] for label in self.stage.labels})
        for i, loaded in enumerate(self._loaded):
            old: Program = loaded.program
            if old.weights:  # else it reads none
                files, digests = {file.path: file.data}, {file.path: lambda: file.digest}
                new = replace(old, weights=files, digests=digests)
                self._loaded[i] = self.updates.renew(loaded, new)

    def _feed(self, weights: Mapping[str, Array]) -> None:
        """Keep the weights that each program reads, as they are now."""
        for i, graph in enumerate((self.stage.forward, self.stage.backward)):
            self._read[i] = {label: weights[label] for label in labels_of(graph)}
        self.updates.costs.bytes_written += sum(array.nbytes for array in self._read[0].values())

    def close(self) -> None:
        """Unload both programs."""
        for loaded in self._loaded:
            loaded.close()
