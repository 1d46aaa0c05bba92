"""ranges: what the values of a run come to on a device in software."""

from __future__ import annotations

from collections.abc import Mapping

from orion_ane.engine.ranges import Range, RangeReport
from orion_ane.errors import BackendError
from orion_ane.runtime.backend import Executable
from orion_ane.runtime.portable import PortableProgram
from orion_ane.types import Array

__all__ = ["Range", "RangeReport", "ranges", "shows_ranges"]


def shows_ranges(executable: Executable) -> bool:
    """Whether the device shows what the program computes inside."""
    return isinstance(executable, PortableProgram)


def ranges(executable: Executable, inputs: Mapping[str, Array]) -> RangeReport:
    """The range of each tensor of a run on these inputs, which `run` would take.

    Raises:
        BackendError: as `Executable.run`; or the device does not show what it computes inside.
    """
    if not isinstance(executable, PortableProgram):
        raise BackendError("ranges", "the device does not show them", want="device emulator or cpu")
    return executable.ranges(inputs)
