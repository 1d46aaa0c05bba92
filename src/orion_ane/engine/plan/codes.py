"""Weights of int8 codes in a graph: those that stay as they are, since products read them so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orion_ane.engine.known import Known
from orion_ane.engine.plan.turned import turned
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.foreign.quantization import AffineDequantize, BlockwiseShiftScale
from orion_ane.ops.leaf import Const, Weight
from orion_ane.ops.linear import Conv1x1
from orion_ane.ops.shape import Cast
from orion_ane.types import Array, DType

BLOCK = 32  # activations of one scale
LANES = 16  # of a sum; scales have room for as many more


@dataclass(frozen=True)
class Codes:
    """A weight that is unpacked by its readers.

    Attributes:
        data: int8 codes, [O, I] and axes of one element.
        scale: a number for each row, or each block of a row.
        block: how many codes of a row have one scale.
    """

    data: Node
    scale: Node
    block: int


def codes_of(node: Node) -> Codes | None:
    """The codes of a weight that a program unpacks; None if it is none, or not of that form."""
    if node.type.rank < 2 or node.type.shape[2:] != (1,) * (node.type.rank - 2):
        return None
    rows, columns = node.type.shape[:2]
    match node:
        case Node(op=AffineDequantize(axis=axis), args=(data, scale, zero)):
            fits = axis % node.type.rank == 0 and scale.type.elements == rows
            block = columns if fits and _is_zero(zero) else 0
        case Node(op=BlockwiseShiftScale(has_offset=False), args=(data, scale)):
            fits = scale.type.shape[0] == rows
            block = columns // scale.type.shape[1] if fits else 0
        case _:
            return None
    plain = data.type.dtype is DType.INT8 and isinstance(data.op, Weight)
    stored = scale.args[0] if isinstance(scale.op, Cast) else scale
    return Codes(data, scale, block) if block and plain and isinstance(stored.op, Weight) else None


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Const) and not node.op.value.any()


def kept(graph: Graph) -> dict[Node, Codes]:
    """The weights of a graph that stay codes: those that products of a weight alone read."""
    found = {node: codes for node in graph.nodes if (codes := codes_of(node)) is not None}
    for node in graph.nodes:
        reads = node.args[:1] if isinstance(node.op, Conv1x1) else node.args
        for arg in reads:
            found.pop(arg, None)
    for node in graph.outputs.values():
        found.pop(node, None)
    return found


class KnownCodes(Known):
    """What is known of a graph, whose quantised weights are not unpacked, nor transposed laid out.

    Where values are rounded to fp16, unpacked weights are too; so there they are folded.
    """

    def __init__(self, graph: Graph, weights: Mapping[Weight, Array], *, rounds: bool) -> None:
        super().__init__(weights, rounds=rounds)
        self.codes = {} if rounds else kept(graph)
        self._turned = turned(graph)

    def _fold(self, node: Node, args: tuple[Node, ...]) -> Array | None:
        apart = node in self.codes or node in self._turned
        return None if apart else super()._fold(node, args)


def scratch_bytes(inner: int, columns: int) -> int:
    """What a thread needs of its own for a product of thin columns."""
    blocks = -(-inner // BLOCK) + LANES
    return 2 * inner * columns + 4 * blocks * (columns + 1) + 4 * inner + 256
