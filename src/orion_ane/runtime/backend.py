"""The protocols of a device and of a loaded program, which every backend keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from orion_ane.ane.targets import Target
from orion_ane.mil.program import Buffer, Program
from orion_ane.types import Array


class Executable(Protocol):
    """A program loaded on a device."""

    @property
    def program(self) -> Program:
        """What was loaded."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by port name, as new arrays of the ports' types.

        Raises:
            BackendError: a port is missing, unknown or of another type; the device failed; or
                the program is closed.
        """
        ...

    def reload(self, weights: Mapping[str, Buffer]) -> None:
        """Exchange the blob files without compiling; paths and layout must be the same.

        Which weights run then is the device's to decide (`Behaviour.reload`): ask a canary.

        Raises:
            BackendError: the files do not fit the text, or the device cannot.
        """
        ...

    def close(self) -> None:
        """Unload; a second call does nothing."""
        ...


class Backend(Protocol):
    """A device that compiles and loads programs."""

    @property
    def name(self) -> str:
        """`emulator`, `cpu`, `ane`, or `ane (stand-in)`."""
        ...

    @property
    def target(self) -> Target | None:
        """Whose limits the programs have to keep; None is nobody's."""
        ...

    @property
    def compiles(self) -> int:
        """How many programs were compiled so far."""
        ...

    @property
    def loads(self) -> int:
        """How many programs were loaded with a donor's code instead."""
        ...

    def compile(self, program: Program) -> Executable:
        """Compile and load a program, from its text and bytes alone.

        Raises:
            MilError: the text or a blob file is not readable.
            LimitError: it breaks limits of the target, which the device checks first.
            BudgetError: the device has no room for another program.
            BackendError: the device refuses the program, or takes none for now.
        """
        ...

    def load(self, program: Program, *, donor: Executable) -> Executable:
        """Load a program with the compiled code of another that has the same text.

        Which weights run is the device's to decide (`Behaviour.donor`); the donor stays as it is.

        Raises:
            MilError: a blob file is not readable, or not the text's.
            BudgetError: the device has no room for another program.
            BackendError: the donor is closed, another device's, or has another text; or the
                device refuses such loads.
        """
        ...


def described(name: str, target: str | None, numerics: str) -> str:
    """A device and how it computes, for people, as `emulator (m1, exact)`."""
    return f"{name} ({numerics if target is None else f'{target}, {numerics}'})"


def numerics_of(device: Backend) -> str:
    """How a device computes: its own way, which is `exact`, unless it says another."""
    return str(getattr(device, "numerics", "exact"))
