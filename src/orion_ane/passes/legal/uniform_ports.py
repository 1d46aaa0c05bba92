"""Surfaces of one size, or of the least size that a target takes.

The paper has one size for all inputs and one for all outputs (its limits 2, 4 and 18).  A device
that binds outputs from the largest surface, where others go by name, is right with one size alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import lcm, prod

from orion_ane.ane.layout import row_stride, surface_bytes
from orion_ane.ane.limits.paper import LEAST_SURFACE
from orion_ane.ane.limits.ports import LEAST_ELEMENTS, UPPER_BYTES
from orion_ane.ane.targets import Target
from orion_ane.ir import Graph, Node
from orion_ane.passes.legal.ports import Surface, with_surfaces
from orion_ane.passes.legal.whole_rows import whole
from orion_ane.types import TensorType

MOST_GROWTH = 64
"""A common size that is so many times the largest surface is none."""


def uniform_ports(graph: Graph, target: Target) -> Graph:
    """The graph with ports of one size on each side, and none below the least."""
    limits = target.limits
    one_output = "ANE002" in limits or ("ANE134" in limits and target.behaviour.binding == "sizes")
    inputs = _surface(graph.inputs.values(), target, is_one="ANE018" in limits)
    outputs = _surface(graph.outputs.values(), target, is_one=one_output)
    return with_surfaces(graph, inputs, outputs)


def _surface(ports: Iterable[Node], target: Target, *, is_one: bool) -> Surface:
    """What one side's ports become: all of one size, or each as large as it must be."""
    types = [node.type for node in ports]
    common = _sized(types, target) if is_one else {}

    def surface(of: TensorType) -> TensorType:
        return common[of] if of in common else _sized([of], target)[of]

    return surface


def _sized(types: list[TensorType], target: Target) -> dict[TensorType, TensorType]:
    """The types at the least size that all can have; as they are where there is none."""
    if not types:
        return {}
    if "ANE004" in target.limits:  # in bytes as they lie packed: whole rows have no others
        rows = {of: whole(of) if of.nbytes < LEAST_SURFACE else of for of in types}
        if list(rows) != list(rows.values()):
            found = _sized(list(rows.values()), target)
            return {of: found[row] for of, row in rows.items()}
    least = max(_least(of, target) for of in types)
    step = lcm(*(_step(of) for of in types), UPPER_BYTES if "ANE116" in target.limits else 1)
    if len({surface_bytes(of) for of in types}) == 1 and surface_bytes(types[0]) == least:
        step = 1  # they are of one size already
    size = -(-least // step) * step
    if size > MOST_GROWTH * least:
        return {of: of for of in types}
    return {of: min(_grown(of, size), key=lambda t: max(t.shape, default=1)) for of in types}


def _least(of: TensorType, target: Target) -> int:
    """The bytes that a surface needs at least."""
    least = surface_bytes(of)
    if "ANE004" in target.limits:
        least = max(least, LEAST_SURFACE)
    if "ANE115" in target.limits:
        last = of.shape[-1] if of.shape else 1
        least = max(least, -(-LEAST_ELEMENTS * row_stride(of) // last))
    if "ANE116" in target.limits:
        least = -(-least // UPPER_BYTES) * UPPER_BYTES
    return least


def _step(of: TensorType) -> int:
    """The bytes that one more row or column of the axis that is cheapest to grow takes."""
    return min(size // n for n, size in _axes(of))


def _axes(of: TensorType) -> Iterator[tuple[int, int]]:
    """For each axis, how many steps it has, and the bytes of them all; rows grow by 64 bytes."""
    size, row = surface_bytes(of), row_stride(of)
    yield row // 64, size
    for n in of.shape[:-1]:
        yield n, size


def _grown(of: TensorType, size: int) -> Iterator[TensorType]:
    """The type with one axis longer, so that the surface has that size."""
    shape = of.shape or (1,)
    if surface_bytes(of) == size:
        yield of
        return
    rows = prod(shape[:-1])
    if size % (rows * 64) == 0:
        yield of.with_shape((*shape[:-1], size // rows // of.dtype.itemsize))
    for axis in reversed(range(len(shape) - 1)):  # the batch last
        one = surface_bytes(of) // shape[axis]
        if size % one == 0:
            yield of.with_shape((*shape[:axis], size // one, *shape[axis + 1 :]))
