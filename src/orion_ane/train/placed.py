"""A stage on a device: its two programs, loaded, and the one weight file that both read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orion_ane.compiler import compile as compile_graph
from orion_ane.mil import pack
from orion_ane.mil.program import Program
from orion_ane.runtime.backend import Executable
from orion_ane.train.stages import Stage
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
        file = pack({label: weights[label] for label in stage.labels})
        programs = [
            compile_graph(graph, file, target=device.target)
            for graph in (stage.forward, stage.backward)
        ]
        self._forward: Executable = device.compile(programs[0])
        self._backward: Executable = device.compile(programs[1])

    def forward(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the forward kernel, kept values among them."""
        return self._forward.run(inputs)

    def backward(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the backward kernel."""
        return self._backward.run(inputs)

    def renew(self, weights: Mapping[str, Array]) -> None:
        """Have both programs run with new weights.

        Raises:
            BackendError: the device cannot, or has no room.
        """
        file = pack({label: weights[label] for label in self.stage.labels})

        def renewed(loaded: Executable) -> Executable:
            old: Program = loaded.program
            files, digests = {file.path: file.data}, {file.path: lambda: file.digest}
            if not old.weights:
                return loaded  # reads none
            return self.updates.renew(loaded, replace(old, weights=files, digests=digests))

        self._forward = renewed(self._forward)
        self._backward = renewed(self._backward)

    def close(self) -> None:
        """Unload both programs."""
        self._forward.close()
        self._backward.close()
