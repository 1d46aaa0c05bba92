"""Plan: a lowered graph as tables, run by one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from orion_ane.engine.known import Known
from orion_ane.engine.plan import natives, team
from orion_ane.engine.plan.build import Builder
from orion_ane.engine.plan.codes import KnownCodes
from orion_ane.engine.plan.fuse import fused, scheduled
from orion_ane.engine.plan.layout import MANY
from orion_ane.engine.plan.memory import Arena
from orion_ane.engine.plan.phases import ALIGNMENT, arena, deal
from orion_ane.engine.plan.table import Table
from orion_ane.engine.plan.tasks import grouped, tasks
from orion_ane.engine.threads import Threads
from orion_ane.ir.graph import Graph
from orion_ane.ops.leaf import Weight
from orion_ane.types import Array

_ARENA = Arena()


class Code:
    """What a graph is lowered to, whatever its weights.

    Raises:
        NoCommand: an op has no command.
    """

    def __init__(self, graph: Graph, known: KnownCodes) -> None:
        builder = Builder(graph, known, known.codes)
        builder.build()
        commands = fused(scheduled(builder.commands))
        deal(commands)
        commands = grouped(commands)
        self.arena = arena(commands)
        self.graph, self.constants = graph, builder.constants
        self.inputs, self.outputs = builder.inputs, builder.outputs
        places = [("constant", "zero")]
        places += [("constant", str(i)) for i in range(len(self.constants))]
        places += [("input", name) for name in self.inputs]
        places += [("output", name) for name in self.outputs]
        self.bases = {place: 1 + i for i, place in enumerate(places)}
        self.rounds = known.rounds
        read = {view.buffer for command in commands for view in command.reads}
        self.read = [name for name, buffer in self.inputs.items() if buffer in read]
        natives.prepare(command.kind for command in commands)
        self.table = Table(commands, self.bases)
        self.scratch = -(-self.table.scratch // ALIGNMENT) * ALIGNMENT
        self.is_dealt = any(command.units for command in commands)
        self.commands = commands


class Plan:
    """A graph with weights, ready to run."""

    def __init__(self, code: Code, known: Known, threads: Threads) -> None:
        self.code, self.threads = code, threads
        self.count = threads.count if code.is_dealt else 1
        self.tasks = tasks(code.commands, self.count)
        self.constants = [_flat(known.constants[node]) for node in code.constants]
        rest = 1 + len(code.bases) - 2 - len(self.constants)
        self.arrays = [_ZERO, _ZERO, *self.constants, *[_ZERO] * rest]  # of each base; 0 the arena
        self.addresses = np.array([array.ctypes.data for array in self.arrays], np.int64)
        self._outputs = {name: node.type for name, node in code.graph.outputs.items()}

    def with_weights(self, weights: Mapping[Weight, Array]) -> Plan:
        """The same graph with other weights: nothing is lowered again.

        Raises:
            ShapeError: a weight has no array, or one of another type.
        """
        known = KnownCodes(self.code.graph, weights, rounds=self.code.rounds)
        for node in self.code.graph.nodes:
            known.is_computed(node)
        return Plan(self.code, known, self.threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, as new arrays.  `inputs` are of the ports' types and are kept.

        One run at a time in a process: others wait.
        """
        outputs = {name: np.empty(of.shape, of.dtype.numpy) for name, of in self._outputs.items()}
        self.bind(inputs, outputs).run()
        return outputs

    def bind(
        self,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        growing: Collection[str] = (),
    ) -> Bound:
        """The plan with its ports at certain arrays, to be run again and again.

        Args:
            inputs: an array for each input; at each run those that are packed are read where
                they are, others as they are now.
            outputs: a packed array for each output, no part of which is an input.
            growing: the inputs that hold nothing along their last axis from a place on that each
                run is told: zeros, which a mask hides.  Where all caches of an attention are
                named, only what is before is read.
        """
        return Bound(self, inputs, outputs, growing)


class Bound:
    """A plan and the arrays of its ports; see `Plan.bind`."""

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        growing: Collection[str],
    ) -> None:
        code = plan.code
        self._plan = plan
        self._arrays, count = list(plan.arrays), len(plan.addresses)
        self._copies: list[tuple[Array, Array, bool]] = []  # of what lies otherwise, made anew
        # Behind the addresses stands how far each is filled.
        self._bases = np.concatenate([plan.addresses, np.full(count, MANY)])
        self._growing = np.array([count + code.bases["input", name] for name in growing], np.intp)
        tables = code.table.commands, code.table.views, code.table.steps, self._bases
        self._tables = (
            plan.tasks.ctypes.data,
            len(plan.tasks),
            *(array.ctypes.data for array in tables),
        )
        self._given = self._tables  # with the threads' own memory, once there is some
        for name in code.read:
            array, is_turned = inputs[name], code.inputs[name].is_turned
            lines = np.moveaxis(array, -1, 0) if is_turned else array
            held = np.ascontiguousarray(lines)
            grows = name in growing
            if (is_turned or grows) and not lines.flags.c_contiguous:
                copy = np.moveaxis(held, 0, -1) if is_turned else held
                self._copies.append((copy, array, grows))
            self._place(code.bases["input", name], held)
        for name in code.outputs:
            self._place(code.bases["output", name], outputs[name])

    def _place(self, base: int, array: Array) -> None:
        self._arrays[base] = flat = _flat(array)
        self._bases[base] = flat.ctypes.data

    def run(self, filled: int = MANY) -> None:
        """Read the inputs and write the outputs.

        Args:
            filled: from where on the inputs that grow are zeros.
        """
        with self._plan.threads.turn:
            self.work(filled)

    def work(self, filled: int = MANY) -> None:
        """The same, for whose is the process's one run already."""
        plan, code, count = self._plan, self._plan.code, self._plan.count
        if len(self._growing):
            self._bases[self._growing] = filled
        for copy, array, grows in self._copies:
            end = filled if grows else MANY
            copy[..., :end] = array[..., :end]
        if self._arrays[0] is not _ARENA.bytes:
            held = _ARENA.at_least(code.arena + count * code.scratch)
            at = int(held.ctypes.data)
            self._arrays[0], self._bases[0] = held, at
            self._given = *self._tables, at + code.arena, code.scratch
        team.lead(plan.threads, count, *self._given)


_ZERO = np.zeros(1, np.float32)


def _flat(array: Array) -> Array:
    """The elements one after the other, fp16 as bits: the array's own memory if it is packed."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint16) if flat.dtype == np.float16 else flat


def plan(graph: Graph, weights: Mapping[Weight, Array], *, rounds: bool, threads: Threads) -> Plan:
    """A plan that computes the graph's outputs with these weights, which it reads in place.

    Raises:
        NoCommand: an op has no command.
        ShapeError: a weight has no array, or one of another type.
    """
    known = KnownCodes(graph, weights, rounds=rounds)
    with np.errstate(all="ignore"):
        return Plan(Code(graph, known), known, threads)
