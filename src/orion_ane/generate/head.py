"""What the head's program of one bucket reads and writes, kept from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orion_ane.models.decoder import Decoder, vocabulary
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.portable import PortableProgram
from orion_ane.types import Array


class Head:
    """The ports of the head's program over some lanes.

    Attributes:
        loaded: the program.
        feed: what it reads.
    """

    def __init__(
        self, decoder: Decoder, loaded: Executable, lanes: int, weights: Mapping[str, Array]
    ) -> None:
        self.loaded = loaded
        ports = {port.name: port.of for port in loaded.program.inputs}
        self._hidden = np.zeros((1, decoder.config.dim, 1, lanes), ports["hidden"].dtype.numpy)
        self.feed = {"hidden": self._hidden, **weights}
        self._names = [f"logits{end}" for end in vocabulary(decoder.config.vocab)]
        self._run = None
        if isinstance(loaded, PortableProgram):
            stretches = vocabulary(decoder.config.vocab)
            dtype = loaded.program.outputs[0].of.dtype.numpy
            self._logits = np.empty((1, decoder.config.vocab, 1, lanes), dtype)
            outputs = {
                f"logits{end}": self._logits[:, part.start : part.stop]
                for end, part in stretches.items()
            }
            self._run = loaded.bind(self.feed, outputs)

    def fill(self, hidden: Array) -> None:
        """Set hidden vectors [S, C], no more than there are lanes; the other lanes are zeros."""
        count = len(hidden)
        self._hidden[0, :, 0, :count] = hidden.T
        if count < self._hidden.shape[3]:
            self._hidden[..., count:] = 0

    def run(self) -> Array:
        """The logits of all lanes, [1, V, 1, lanes]: memory that the next run writes to."""
        if self._run is not None:
            self._run()
            return self._logits
        found = self.loaded.run(self.feed)
        parts = [found[name] for name in self._names]
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
