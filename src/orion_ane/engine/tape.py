"""Tape: a lowered graph, as a flat list of steps over numbered slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from orion_ane.engine.functions import Function
from orion_ane.engine.half import narrow
from orion_ane.engine.threads import Threads
from orion_ane.types import Array

Slots: TypeAlias = list[Any]
"""The values that are alive, by slot; None where there is none."""

Step: TypeAlias = Callable[[Slots], None]


class Tape:
    """What a graph computes, ready to run.

    Args:
        slots: the constants in their slots, None elsewhere.
        steps: run in order; each fills a slot or empties one.
        inputs: port name, slot, and what makes the value of the port's array, if not that itself.
        outputs: port name, slot, and what makes an array of the port's type of the value.
        threads: who computes.
    """

    def __init__(
        self,
        slots: Slots,
        steps: list[Step],
        *,
        inputs: list[tuple[str, int, Function | None]],
        outputs: list[tuple[str, int, Function]],
        threads: Threads,
    ) -> None:
        self._slots, self._steps, self._threads = slots, steps, threads
        self._inputs, self._outputs = inputs, outputs

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, as new arrays.  `inputs` are of the ports' types and are kept.

        One run at a time in a process: others wait.
        """
        slots = self._slots.copy()
        with self._threads.running():
            for name, slot, enter in self._inputs:
                slots[slot] = inputs[name] if enter is None else enter(inputs[name])
            for step in self._steps:
                step(slots)
            return {name: finish(slots[slot]) for name, slot, finish in self._outputs}


def step_of(function: Function, target: int, args: list[int], rounded: Function | None) -> Step:
    """slots[target] = function of the slots `args`, then rounded; specialised, since it is hot."""
    match args:
        case [a]:
            return _unary(function, target, a, rounded)
        case [a, b]:
            return _binary(function, target, a, b, rounded)

    def step(slots: Slots) -> None:
        result = function(*[slots[arg] for arg in args])
        slots[target] = result if rounded is None else rounded(result)

    return step


def _unary(function: Function, target: int, a: int, rounded: Function | None) -> Step:
    def step(slots: Slots) -> None:
        slots[target] = function(slots[a])

    def rounding_step(slots: Slots) -> None:
        slots[target] = rounded(function(slots[a]))  # type: ignore[misc]  # chosen only if not None

    return step if rounded is None else rounding_step


def _binary(function: Function, target: int, a: int, b: int, rounded: Function | None) -> Step:
    def step(slots: Slots) -> None:
        slots[target] = function(slots[a], slots[b])

    def rounding_step(slots: Slots) -> None:
        slots[target] = rounded(function(slots[a], slots[b]))  # type: ignore[misc]  # as above

    return step if rounded is None else rounding_step


def drop(slot: int) -> Step:
    """The step that lets a dead value go."""

    def step(slots: Slots) -> None:
        slots[slot] = None

    return step


def finisher(*, is_half: bool, is_shared: bool) -> Function:
    """What makes an output's array of its value.

    Args:
        is_half: the port is fp16.
        is_shared: the value belongs to a caller, a constant or another output.
    """
    if is_half:
        return narrow
    return _copy if is_shared else _own


def _copy(value: Array) -> Array:
    return np.array(value, order="C")


def _own(value: Array) -> Array:
    """The value itself if nothing else can hold its memory and it is packed; else a copy."""
    fresh = type(value) is np.ndarray and value.base is None and value.flags.c_contiguous
    return value if fresh else np.array(value, order="C")
