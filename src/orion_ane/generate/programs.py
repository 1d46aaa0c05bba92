"""The programs of one model on one device, compiled when first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orion_ane.generate.kept import Kept
from orion_ane.generate.kernels import MAX_LANES, Kernel, Kernels
from orion_ane.generate.packing import FILE_ROOM, Packed, packed
from orion_ane.models.decoder import Decoder
from orion_ane.nn.blocks import Precision
from orion_ane.runtime.backend import Backend, Executable
from orion_ane.runtime.cache import ProgramCache
from orion_ane.runtime.chain import Chains
from orion_ane.types import Array

__all__ = ["MAX_LANES", "Kernel", "Programs"]


class Programs(Kernels):
    """Body and head programs by bucket, loaded on a device; see `Kernels`."""

    def __init__(
        self,
        decoder: Decoder,
        tensors: Mapping[str, Array] | Packed,
        backend: Backend,
        *,
        precision: Precision,
        min_lanes: int = 1,
        layers_per_program: int | None = None,
        file_room: int = FILE_ROOM,
        kept: Kept | None = None,
    ) -> None:
        """Lay out a model's weights; nothing is compiled yet.

        Args:
            decoder: the model.
            tensors: its canonical tensors, which need not outlive this call; or its weights, packed
                already.
            backend: the device.
            precision: the element types of the programs.
            min_lanes: see the class.
            layers_per_program: None is as many as one weight file holds (case W11).
            file_room: the bytes of weights that one file may hold.
            kept: where programs are kept for the next process.
        """
        if isinstance(tensors, Packed):
            weights = tensors
        else:
            most = layers_per_program
            weights = packed(
                decoder, tensors, precision, layers_per_program=most, file_room=file_room
            )
        super().__init__(
            decoder,
            weights,
            precision=precision,
            target=backend.target,
            min_lanes=min_lanes,
            kept=kept,
        )
        self._cache = ProgramCache(backend)
        self.chains = backend if isinstance(backend, Chains) else None
        """The device, where it runs programs one after another by itself."""

    def loaded(self, kernel: Kernel) -> Executable:
        """The program on the device, to be used at once: another may take its place."""
        return self._cache.get(kernel.program)

    def all_loaded(self, kernels: Sequence[Kernel]) -> list[Executable] | None:
        """Several programs at once; None where there is no room for all of them."""
        if len(set(kernels)) > self._cache.capacity:
            return None
        return [self.loaded(kernel) for kernel in kernels]

    def __len__(self) -> int:
        """How many programs are loaded."""
        return len(self._cache)

    def close(self) -> None:
        """Unload everything."""
        self._cache.close()
