"""Graph to tape: constants resolved and folded, values in slots, functions chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from orion_ane.engine.functions import ROUNDS_NOTHING, Function, function_of
from orion_ane.engine.half import rounder, widen
from orion_ane.engine.matmul import conv1x1_by_input, matmul
from orion_ane.engine.products import conv1x1
from orion_ane.engine.tape import Slots, Step, Tape, drop, finisher, step_of
from orion_ane.engine.threads import Threads
from orion_ane.errors import ShapeError
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.leaf import Const, Input, Weight
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.shape import Cast, Identity, Reshape, Slice, Transpose
from orion_ane.types import Array, DType

Numerics: TypeAlias = Literal["fp16", "fp32"]

MAX_FOLDED_BYTES = 1 << 24  # a constant may grow to this when it is folded; larger ones only shrink


def lower(
    graph: Graph,
    weights: Mapping[Weight, Array],
    *,
    numerics: Numerics,
    threads: int | None = None,
) -> Tape:
    """A tape that computes the graph's outputs with these weights, which it reads in place.

    Args:
        graph: what to compute.
        weights: an array for each weight leaf, of its type.
        numerics: `fp16` rounds each result to its declared type, once, after computing in fp32;
            `fp32` keeps what is declared fp16 in fp32, and rounds at output ports alone.
        threads: how many threads at most; by default one a processor.  It does not show in the
            results.

    Raises:
        ShapeError: a weight has no array, or one of another type.
        ConfigError: no such number of threads.
    """
    return _Lowering(graph, weights, numerics, Threads(threads)).tape()


class _Lowering:
    def __init__(
        self, graph: Graph, weights: Mapping[Weight, Array], numerics: Numerics, threads: Threads
    ) -> None:
        self.graph, self.weights, self.threads = graph, weights, threads
        self.rounds = numerics == "fp16"
        self.origins: dict[Node, Node] = {}  # of a node whose value is another's
        self.constants: dict[Node, Array] = {}  # fp16 ones as stored: kernels read them so
        self.slots: Slots = []
        self.slot: dict[Node, int] = {}

    def tape(self) -> Tape:
        with np.errstate(all="ignore"):
            computed = [node for node in self.graph.nodes if self._is_computed(node)]
        calls = [(node, *self._call(node)) for node in computed]
        last = {arg: i for i, (_, _, args) in enumerate(calls) for arg in args}
        outputs = {name: self._origin(node) for name, node in self.graph.outputs.items()}
        last.update(dict.fromkeys(outputs.values(), len(calls)))
        inputs = [
            (name, self._new_slot(node), node.type.dtype is DType.FP16)
            for name, node in self.graph.inputs.items()
            if node in last
        ]
        steps = self._steps(calls, last)
        finished = [
            (name, self._slot_of(node), self._finisher(name, node, list(outputs.values())))
            for name, node in outputs.items()
        ]
        return Tape(self.slots, steps, inputs=inputs, outputs=finished, threads=self.threads)

    # What is known now

    def _origin(self, node: Node) -> Node:
        return self.origins.get(node, node)

    def _is_computed(self, node: Node) -> bool:
        """Whether a step computes the node; else it is an input, a constant or another's value."""
        match node.op:
            case Input():
                return False
            case Const() as const:
                self.constants[node] = const.value
                return False
            case Weight() as weight:
                self.constants[node] = self._weight(weight)
                return False
        args = tuple(map(self._origin, node.args))
        if self._is_same(node):
            self.origins[node] = args[0]
            return False
        folded = self._fold(node, args)
        if folded is None:
            return True
        self.constants[node] = folded
        return False

    def _weight(self, weight: Weight) -> Array:
        found = self.weights.get(weight)
        want = (weight.of.dtype.numpy, weight.of.shape)
        if found is None or (found.dtype, found.shape) != want:
            got = None if found is None else f"{found.dtype}{list(found.shape)}"
            raise ShapeError(f"weight {weight.label}", "no fitting value", got=got, want=weight.of)
        return np.require(found, requirements=["C", "A"])

    def _is_same(self, node: Node) -> bool:
        """Whether the node's value is its operand's as it is held here."""
        match node:
            case Node(op=Identity()):
                return True
            case Node(op=Cast(to=to), args=(x,)) if to.is_float and x.type.dtype.is_float:
                return to is DType.FP32 or to is x.type.dtype or not self.rounds
        return False

    def _fold(self, node: Node, args: tuple[Node, ...]) -> Array | None:
        """The node's value, where its operands are constants and it is cheap to keep."""
        if not all(arg in self.constants for arg in args) or isinstance(node.op, Conv1x1 | Matmul):
            return None
        known = [self.constants[arg] for arg in args]
        if node.type.nbytes > max(MAX_FOLDED_BYTES, *(array.nbytes for array in known)):
            return None
        match node.op:
            case Reshape() | Transpose() | Slice():  # moved as stored: an fp16 weight stays fp16
                return np.asarray(node.op.eval((known[0],)), order="C")
            case Cast(to=DType.FP16):  # `_is_same` took the casts that keep more
                return known[0].astype(np.float16 if self.rounds else np.float32)
        function, rounded = function_of(node), self._rounder(node)
        result = function(*map(_held, known))
        return np.asarray(result if rounded is None else rounded(result))

    # Functions and slots

    def _call(self, node: Node) -> tuple[Function, tuple[Node, ...]]:
        """The function that computes the node, and the values it takes from slots."""
        args = tuple(map(self._origin, node.args))
        types = tuple(arg.type for arg in node.args)
        match node.op:
            case Conv1x1() if args[1] in self.constants:
                return conv1x1(types[0], self.constants[args[1]], self.threads), args[:1]
            case Conv1x1():
                return conv1x1_by_input(types[0], types[1], self.threads), args
            case Matmul() as op:
                return matmul(node, op, self.threads), args
        return function_of(node), args

    def _rounder(self, node: Node) -> Function | None:
        is_exact = not self.rounds or node.type.dtype is not DType.FP16
        return (
            None if is_exact or isinstance(node.op, ROUNDS_NOTHING) else rounder(node.type.elements)
        )

    def _new_slot(self, node: Node, value: Array | None = None) -> int:
        self.slot[node] = len(self.slots)
        self.slots.append(value)
        return self.slot[node]

    def _slot_of(self, node: Node) -> int:
        if node not in self.slot and node in self.constants:
            return self._new_slot(node, _held(self.constants[node]))
        return self.slot[node]

    def _steps(
        self, calls: list[tuple[Node, Function, tuple[Node, ...]]], last: dict[Node, int]
    ) -> list[Step]:
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
            steps.append(step_of(function, self.slot[node], slots, self._rounder(node)))
            steps.extend(drop(self.slot[a]) for a in dying if self.slot[a] != self.slot[node])
        return steps

    def _finisher(self, name: str, node: Node, outputs: list[Node]) -> Function:
        """What makes the array of the output `name` of the value of `node`."""
        return finisher(
            is_half=self.graph.outputs[name].type.dtype is DType.FP16,
            is_shared=node.op.name == "input" or node in self.constants or outputs.count(node) > 1,
        )


def _held(constant: Array) -> Array:
    """A constant as values are held between steps."""
    return widen(constant) if constant.dtype == np.float16 else constant
