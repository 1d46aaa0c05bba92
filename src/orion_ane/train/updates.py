"""How new weights reach loaded programs: four ways, of which a device allows some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from orion_ane.ane.targets import Loads
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import BackendError, ConfigError
from orion_ane.ir import Graph
from orion_ane.mil.program import Program
from orion_ane.ops import input_, weight
from orion_ane.runtime.backend import Backend, Executable
from orion_ane.types import Array, DType, TensorType

UpdatesName: TypeAlias = Literal["auto", "recompile", "donor", "reload", "input"]
CANARY_LANES = 64


@dataclass
class Costs:
    """What the updates of a run have cost so far.

    Attributes:
        compiles: programs compiled for new weights.
        loads: programs loaded by a donor's code.
        unloads: programs closed for new ones.
        reloads: programs whose weights were exchanged in place.
        bytes_written: of weight files that the device was given.
    """

    compiles: int = 0
    loads: int = 0
    unloads: int = 0
    reloads: int = 0
    bytes_written: int = 0


@dataclass(eq=False)
class Updates(ABC):
    """A way for new weights to reach the programs of one device.

    Attributes:
        device: the backend.
        why: why this way was taken, for reports.
        costs: so far.
    """

    device: Backend
    why: str = "asked for"
    costs: Costs = field(default_factory=Costs)

    name: ClassVar[str]
    as_inputs: ClassVar[bool] = False
    """Whether weights are inputs of the programs, which then are never renewed."""

    def renew(self, loaded: Executable, program: Program) -> Executable:
        """What runs the program, in place of what ran the same text with other weights.

        The old executable is not to be used any more.

        Raises:
            BackendError: the device cannot, or has no room.
        """
        self.costs.bytes_written += program.weight_bytes
        return self._renewed(loaded, program)

    @abstractmethod
    def _renewed(self, loaded: Executable, program: Program) -> Executable: ...

    def verify(self) -> None:
        """Ask a canary: a program whose output shows which weights it runs with.

        Raises:
            BackendError: the device runs on with the old weights: nothing would be trained.
        """
        first, second = _canary(self.device, 1.0), _canary(self.device, 2.0)
        loaded = self.device.compile(first)
        try:
            loaded = self._renewed(loaded, second)
            ones = np.ones((1, 1, 1, CANARY_LANES), np.float16)
            got = loaded.run({"x": ones})["y"].ravel()
        finally:
            loaded.close()
        self._want_two(got)

    def _want_two(self, got: Array) -> None:
        if not (got == 2).all():
            raise BackendError(
                f"updates {self.name}",
                f"device {self.device.name} runs on with the weights of before",
                got=f"the canary gives {got[0]}",
                want=2.0,
                hint="nothing would be trained; take `updates` donor, or recompile",
            )


def _canary(device: Backend, value: float) -> Program:
    of = TensorType(DType.FP16, (1, 1, 1, CANARY_LANES))
    x, w = input_("x", of), weight("w", of)
    weights = {"w": np.full(of.shape, value, np.float16)}
    return compile_graph(Graph({"x": x}, {"y": x * w}), weights, target=device.target)


class Recompile(Updates):
    """Unload and compile again: always right, and what the paper first did."""

    name = "recompile"

    def _renewed(self, loaded: Executable, program: Program) -> Executable:
        loaded.close()  # first: the device may have no room for both
        self.costs.unloads += 1
        made = self.device.compile(program)
        self.costs.compiles += 1
        return made


class Donor(Updates):
    """Load with the compiled code of what ran before, then unload that: no compile."""

    name = "donor"

    def _renewed(self, loaded: Executable, program: Program) -> Executable:
        made = self.device.load(program, donor=loaded)
        self.costs.loads += 1
        loaded.close()
        self.costs.unloads += 1
        return made


class Reload(Updates):
    """Exchange the weights of the loaded program in place."""

    name = "reload"

    def _renewed(self, loaded: Executable, program: Program) -> Executable:
        loaded.reload(program.weights)
        self.costs.reloads += 1
        return loaded


class Inputs(Updates):
    """Weights are inputs like any other: nothing is loaded again, and every run reads them."""

    name = "input"
    as_inputs = True

    def _renewed(self, loaded: Executable, program: Program) -> Executable:
        raise AssertionError(f"{program} reads no weights that could be renewed")

    def verify(self) -> None:
        """Ask a canary, as the other ways do."""
        of = TensorType(DType.FP16, (1, 1, 1, CANARY_LANES))
        x, w = input_("x", of), input_("w", of)
        loaded = self.device.compile(
            compile_graph(Graph({"x": x, "w": w}, {"y": x * w}), target=self.device.target)
        )
        try:
            for value in (1, 2):
                fed = {"x": np.ones(of.shape, np.float16), "w": np.full(of.shape, value, "f2")}
                got = loaded.run(fed)["y"].ravel()
        finally:
            loaded.close()
        self._want_two(got)


WAYS: dict[str, type[Updates]] = {kind.name: kind for kind in (Recompile, Donor, Reload, Inputs)}


def updates(name: UpdatesName, device: Backend, *, verify: bool = True) -> Updates:
    """The way of that name, proven on the device.

    Args:
        name: a key of `WAYS`, or `auto`, which takes what the target allows and costs least.
        device: the backend.
        verify: whether a canary is asked first.

    Raises:
        ConfigError: there is no such way.
        BackendError: the device keeps its old weights under this way, or refuses it.
    """
    if name not in get_args(UpdatesName):
        want = ", ".join(get_args(UpdatesName))
        raise ConfigError("updates", "no such way", got=name, want=want)
    made = _chosen(device) if name == "auto" else WAYS[name](device)
    if verify:
        made.verify()
    return made


def _chosen(device: Backend) -> Updates:
    target = device.target
    if target is None:
        return Reload(device, f"{device.name} has no compiled code to keep old weights in")
    behaviour = target.behaviour
    if behaviour.reload == "new":
        return Reload(device, f"{target.name} takes new weights on reload")
    why = f"{target.name}: {_word(behaviour.reload)} on reload"
    if behaviour.donor == "new":
        return Donor(device, f"{why}, but takes new ones by a donor")
    return Inputs(device, f"{why}, and {_word(behaviour.donor)} by a donor")


def _word(answer: Loads) -> str:
    words: dict[Loads, str] = {"old": "keeps old weights", "new": "takes", "refused": "refuses"}
    return words[answer]
