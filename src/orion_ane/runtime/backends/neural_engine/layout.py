"""Where the values of a chain lie: surfaces, and the steps between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orion_ane.mil.program import Port, Program
from orion_ane.runtime.backends.neural_engine.plan import Lay, Move, Run, Scale, Step, View
from orion_ane.runtime.chain import Call, Lanes, Link, Rescaled

ALIGNED = 64


@dataclass(frozen=True)
class Placed:
    """A surface that is written or read by the one who asks.

    Attributes:
        surface: its number.
        port: one that has it.
        start: where its bytes lie in the block that is shared with the worker.
    """

    surface: int
    port: Port
    start: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.port.type.nbytes


class Layout:
    """Surfaces and steps of a chain's links.

    Ports of one type share the surface of their value, whichever programs they are of; into others
    it is moved before they are read.

    Attributes:
        ports: one of each surface, by its number.
        steps: as the worker takes them.
        ends: how many steps the first links are, by their number.
        given: the surfaces of each value that no link makes.
        asked: the number of the first link that reads it, from 1.
        taken: that of each value that comes out, and how many links make it.
        numbers: the names of those that steps name by their place.
        room: the bytes that all of `given` and `taken` need.
    """

    def __init__(
        self, programs: Sequence[Program], links: Sequence[Link], takes: Collection[str]
    ) -> None:
        self.ports: list[Port] = []
        self.steps: list[Step] = []
        self.ends = [0]
        self.numbers: list[str] = []
        self.given: dict[str, list[Placed]] = {}
        self.asked: dict[str, int] = {}
        self.room = 0
        self._programs, self._links = programs, links
        self._of: dict[str, list[int]] = {}  # surfaces by value, the first as it was made
        self._made: dict[str, int] = {}
        for number, link in enumerate(links, 1):
            match link:
                case Call():
                    self._call(link, number)
                case Lanes():
                    to = [self._view(i) for i in self._target(link.to, number)]
                    of = self._source(link.of)
                    places = (link.count, link.first, link.at)
                    count, first, at = (self._number(name) for name in places)
                    self.steps += [Lay(of, view, count, first, at) for view in to]
                case Rescaled():
                    to = [self._view(i) for i in self._target(link.to, number)]
                    of = self._source(link.of)
                    over, by = self._number(link.over), self._number(link.by)
                    self.steps += [Scale(of, view, over, by) for view in to]
            self.ends.append(len(self.steps))
        self.taken = {name: (self._placed(self._of[name][0]), self._made[name]) for name in takes}

    def _call(self, call: Call, number: int) -> None:
        program = self._programs[call.program]
        inputs = [self._read(call.reads[port.name], port, number) for port in program.inputs]
        outputs = [self._written(call.writes.get(p.name), p, number) for p in program.outputs]
        self.steps.append(Run(call.program, tuple(inputs), tuple(outputs)))

    def _read(self, value: str, port: Port, number: int) -> int:
        """The surface in which a program reads a value."""
        held = self._of.setdefault(value, [])
        for i in held:
            if self.ports[i].type == port.type:
                return i
        held.append(self._new(port))
        if value in self._made:
            self.steps.append(Move(self._view(held[0]), self._view(held[-1])))
        else:
            self.given.setdefault(value, []).append(self._placed(held[-1]))
            self.asked.setdefault(value, number)
        return held[-1]

    def _written(self, value: str | None, port: Port, number: int) -> int:
        """The surface in which a program leaves a value; one of its own where nobody reads it."""
        if value is None:
            return self._new(port)
        held = self._of.get(value, [])
        again = value in self._made and self.ports[held[0]].type == port.type
        made = held[0] if again else self._new(port)
        self._of[value] = [made]
        self._made[value] = number
        return made

    def _target(self, value: str, number: int) -> list[int]:
        """The surfaces of a value that is no program's output: those of who reads it."""
        if value not in self._of:
            self._of[value] = [self._new(self._reader(value, number))]
            self._made[value] = number
        return self._of[value]

    def _reader(self, value: str, number: int) -> Port:
        """The first port that reads a value after some links."""
        for link in self._links[number:]:
            if isinstance(link, Call):
                for port in self._programs[link.program].inputs:
                    if link.reads[port.name] == value:
                        return port
        raise AssertionError(f"no program reads {value}")

    def _source(self, value: str) -> View:
        return self._view(self._of[value][0])

    def _new(self, port: Port) -> int:
        self.ports.append(port)
        return len(self.ports) - 1

    def _view(self, surface: int) -> View:
        port = self.ports[surface]
        return View(surface, port.type, port.of.shape or (1,) * port.type.rank)

    def _placed(self, surface: int) -> Placed:
        port, start = self.ports[surface], self.room
        self.room += -(-port.type.nbytes // ALIGNED) * ALIGNED
        return Placed(surface, port, start)

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers.append(name)
        return self.numbers.index(name)
