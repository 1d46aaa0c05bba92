"""The tape of a graph: constants resolved and folded, values in slots, functions chosen."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from orion_ane.engine.functions import Function
from orion_ane.engine.half import widen
from orion_ane.engine.known import Known
from orion_ane.engine.products import product_of
from orion_ane.engine.tape import Slots, Step, Tape, drop, finisher, step_of
from orion_ane.engine.threads import Threads
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.linear import Conv1x1
from orion_ane.types import Array, DType

Call: TypeAlias = tuple[Node, Function, tuple[Node, ...]]


class Lowering:
    """A graph on its way to a tape; `known` says how its values are rounded."""

    def __init__(self, graph: Graph, known: Known, threads: Threads) -> None:
        self.graph, self.threads = graph, threads
        self.known = known
        self.constants = self.known.constants
        self.slots: Slots = []
        self.slot: dict[Node, int] = {}

    def tape(self) -> Tape:
        """The tape that computes all outputs."""
        calls = self.calls()
        last = {arg: i for i, (_, _, args) in enumerate(calls) for arg in args}
        outputs = {name: self.known.origin(node) for name, node in self.graph.outputs.items()}
        last.update(dict.fromkeys(outputs.values(), len(calls)))
        inputs = [
            (name, self._new_slot(node), self.entering(is_half=node.type.dtype is DType.FP16))
            for name, node in self.graph.inputs.items()
            if node in last
        ]
        steps = self._steps(calls, last)
        finished = [
            (name, self._slot_of(node), self._finisher(name, node, list(outputs.values())))
            for name, node in outputs.items()
        ]
        return Tape(self.slots, steps, inputs=inputs, outputs=finished, threads=self.threads)

    def calls(self) -> list[Call]:
        """Each node that is computed, its function, and the values that this takes, in order."""
        with np.errstate(all="ignore"):
            computed = [node for node in self.graph.nodes if self.known.is_computed(node)]
        return [(node, *self._call(node)) for node in computed]

    # Functions and slots

    def entering(self, *, is_half: bool) -> Function | None:
        """What makes a value of an input's array, if it is not that itself."""
        return widen if is_half else None

    def _call(self, node: Node) -> tuple[Function, tuple[Node, ...]]:
        """The function that computes the node, and the values it takes from slots."""
        args = tuple(map(self.known.origin, node.args))
        constants = {i: self.constants[arg] for i, arg in enumerate(args) if arg in self.constants}
        found = product_of(node, constants, self.threads)
        if found is None:
            return self.known.function(node), args
        return found, args[:1] if isinstance(node.op, Conv1x1) and 1 in constants else args

    def _new_slot(self, node: Node, value: Array | None = None) -> int:
        self.slot[node] = len(self.slots)
        self.slots.append(value)
        return self.slot[node]

    def _slot_of(self, node: Node) -> int:
        if node not in self.slot and node in self.constants:
            return self._new_slot(node, self.known.held(self.constants[node]))
        return self.slot[node]

    def _steps(self, calls: list[Call], last: dict[Node, int]) -> list[Step]:
        """The calls as steps, and what lets go of each value right after its last use."""
        steps: list[Step] = []
        free: list[int] = []
        for i, (node, function, args) in enumerate(calls):
            slots = [self._slot_of(arg) for arg in args]
            dying = [a for a in dict.fromkeys(args) if last[a] == i and a not in self.constants]
            free.extend(self.slot[arg] for arg in dying)
            if free:
                self.slot[node] = free.pop()  # a dying operand's, if there is one
            else:
                self._new_slot(node)
            steps.append(step_of(function, self.slot[node], slots, self.known.rounder(node)))
            steps.extend(drop(self.slot[a]) for a in dying if self.slot[a] != self.slot[node])
        return steps

    def _finisher(self, name: str, node: Node, outputs: list[Node]) -> Function:
        """What makes the array of the output `name` of the value of `node`."""
        return finisher(
            is_half=self.graph.outputs[name].type.dtype is DType.FP16,
            is_shared=node.op.name == "input" or node in self.constants or outputs.count(node) > 1,
        )
