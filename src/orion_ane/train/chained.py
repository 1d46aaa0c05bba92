"""Stages on a device that runs programs one after another: one message a way and sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from orion_ane.runtime.backend import Executable
from orion_ane.runtime.chain import Call, Chains, Link, Rescaled
from orion_ane.train.placed import Placed
from orion_ane.train.stages import Stage
from orion_ane.types import Array


class Chained:
    """The first stages of a network, whose values stay on the device between their programs.

    What comes out is what the host reads: hidden vectors, what it multiplies, and all that the way
    back gives.

    Args:
        device: that all of them are on.
        placed: those stages, in forward order.
        shared: what all rows read, by the ports' names.
    """

    def __init__(
        self, device: Chains, placed: Sequence[Placed], shared: Mapping[str, Array]
    ) -> None:
        self._placed, self._shared = tuple(placed), dict(shared)
        self._stages = [each.stage for each in placed]
        self._labels = {label for each in placed for way in (0, 1) for label in each.read(way)}
        links = [*self._there()]
        self._turn = len(links)
        links += self._back()
        takes = {
            self._value(i, name)
            for i, stage in enumerate(self._stages)
            for name in (*_read_by_host(stage), *stage.backward.outputs)
        }
        self._chain = device.chain([each.program for each in self._loaded()], links, takes)
        self._given: dict[str, Array] = {}
        self._found: list[dict[str, Array]] = []
        self._is_fresh = True  # whether the device has the weights that are inputs

    def __len__(self) -> int:
        return len(self._placed)

    def forward(
        self, x: Array, own: Sequence[Mapping[str, Array]], *, is_learnt: bool
    ) -> list[dict[str, Array]]:
        """The outputs of each stage that the host reads.

        Args:
            x: what the first stage takes.
            own: what each stage reads of this row alone, beside that.
            is_learnt: whether `back` follows; else hidden vectors alone come out.
        """
        first = self._stages[0]
        with np.errstate(all="ignore"):
            taken = np.ascontiguousarray(x, first.dtype.numpy)
        row = {self._value(i, name): a for i, each in enumerate(own) for name, a in each.items()}
        row[self._value(0, first.takes)] = taken
        weights = {
            n: a for each in self._placed for way in (0, 1) for n, a in each.read(way).items()
        }
        self._given = self._shared | weights | row
        gives = {self._value(i, n) for i, stage in enumerate(self._stages) for n in stage.gives}
        found = self._chain.run(
            self._loaded(),
            self._given,
            changed=row.keys() if self._is_fresh else row.keys() | self._labels,
            links=(0, self._turn),
            takes=None if is_learnt else gives,
        )
        self._is_fresh = True
        return [self._of(i, stage.forward.outputs, found) for i, stage in enumerate(self._stages)]

    def back(
        self,
        number: int,
        known: Mapping[str, Array],
        seeds: Mapping[str, Array],
        scales: Mapping[str, float],
    ) -> dict[str, Array]:
        """As `Placed.back` of one stage; the last, which is asked first, has all of them run.

        Args:
            number: of the stage.
            known: what was kept of it.
            seeds: its cotangents in fp32, without any scale.
            scales: of the stages, by their names.
        """
        each = [scales.get(stage.name, 1.0) for stage in self._stages]
        cotangents = self._placed[number].cotangents(seeds, each[number])
        if number == len(self) - 1:
            fed = {self._value(number, name): array for name, array in cotangents.items()}
            found = self._chain.run(
                self._loaded(),
                self._given | fed,
                changed=fed.keys(),
                numbers={f"scale {i}": scale for i, scale in enumerate(each)},
                links=(self._turn, 2 * self._turn + len(self) - 1),
            )
            self._found = [
                self._of(i, stage.backward.outputs, found) for i, stage in enumerate(self._stages)
            ]
        return {**known, **cotangents, **self._found[number]}

    def renewed(self) -> None:
        """Have the device read weights that are inputs anew."""
        self._is_fresh = False

    def close(self) -> None:
        """Give the chain up."""
        self._chain.close()

    def _there(self) -> list[Link]:
        return [self._call(i, i, 0) for i in range(len(self))]

    def _back(self) -> list[Link]:
        links: list[Link] = []
        last = len(self) - 1
        for i in range(last, -1, -1):
            if i < last:
                later = self._value(i + 1, f"d_{self._stages[i + 1].takes}")
                (gives,) = self._stages[i].gives
                over, by = f"scale {i + 1}", f"scale {i}"
                links.append(Rescaled(later, self._value(i, f"d_{gives}"), over=over, by=by))
            links.append(self._call(i, len(self) + last - i, 1))
        return links

    def _call(self, number: int, place: int, way: int) -> Call:
        stage = self._stages[number]
        graph = stage.backward if way else stage.forward
        names = (*graph.inputs, *self._placed[number].read(way))
        return Call(
            place,
            {name: self._value(number, name) for name in names},
            {name: self._value(number, name) for name in graph.outputs},
        )

    def _value(self, number: int, name: str) -> str:
        """The value at a port of a stage, of either way."""
        stage = self._stages[number]
        if name in self._shared or name in self._labels:
            return name
        if name == stage.takes:
            return f"hidden {number}"
        if name == "hidden":  # which a stage that takes it does not give
            return f"hidden {number + 1}"
        return f"{number} {name}"

    def _of(
        self, number: int, names: Mapping[str, object], found: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Those of a stage's outputs that came out."""
        values = {name: self._value(number, name) for name in names}
        return {name: found[value] for name, value in values.items() if value in found}

    def _loaded(self) -> list[Executable]:
        """What runs, in the order of places: all there, then all back."""
        there = [each.loaded[0] for each in self._placed]
        return there + [each.loaded[1] for each in reversed(self._placed)]


def _read_by_host(stage: Stage) -> set[str]:
    """The outputs of a stage's forward kernel that are more than kept for the way back."""
    multiplied = {name for pair in stage.pairs for name in (pair.x, pair.dy)}
    return {*stage.gives, *(multiplied & stage.forward.outputs.keys())}
