"""graph → passes → legalisers → emit → check → Program, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from orion_ane.ane.check import want_kept
from orion_ane.ane.targets import Target
from orion_ane.ane.targets import target as find_target
from orion_ane.errors import MilError
from orion_ane.ir import Graph, Node, verify
from orion_ane.mil.blob import WeightFile, check_size, pack
from orion_ane.mil.dialect import IOS18, Dialect
from orion_ane.mil.emit import emit
from orion_ane.mil.place import place
from orion_ane.mil.program import Port, Program
from orion_ane.ops import Weight
from orion_ane.passes import DEFAULT, settle
from orion_ane.passes.legal import legalise
from orion_ane.passes.legal.ordered_ports import numbered
from orion_ane.types import Array

Ports: TypeAlias = tuple[Port, ...]

NO_WEIGHTS: Mapping[str, Array] = MappingProxyType({})


def compile(
    graph: Graph,
    weights: WeightFile | Mapping[str, Array] = NO_WEIGHTS,
    *,
    target: Target | str | None = "strict",
    pipeline: Iterable[str] = DEFAULT,
    dialect: Dialect | None = None,
) -> Program:
    """The program of a graph; equal graphs and weights give equal programs.

    Args:
        graph: what to compile.
        weights: a file that may hold more than this graph needs, since programs share it; or the
            graph's own arrays by label, which are packed into a file of their own.
        target: the device, by name, whose limits the program has to keep: the graph is made to
            fit, its ports are ordered, and may be larger than what they hold.  None is no device:
            ports stay as they are, and nothing is checked.
        pipeline: passes by name, run until none changes anything.
        dialect: the generation of MIL text, by default the target's.

    Raises:
        ShapeError: the graph breaks an invariant.
        ConfigError: there is no such pass or target.
        MilError: a weight is missing, has another type or, given as an array, is in no use; the
            weights are too large for one program; or a parameter cannot be spelled.
        LimitError: the program breaks limits that no legaliser can keep; it lists them all.
    """
    device = find_target(target) if isinstance(target, str) else target
    verify(graph)
    settled = settle(graph, pipeline)
    if device is not None:
        settled = legalise(settled, device)
    labels = _labels(settled)
    if isinstance(weights, WeightFile):
        file = weights
    else:
        unused = sorted(set(weights) - set(_labels(graph)))
        if unused:
            raise MilError("weights", "no leaf of the graph has this label", got=unused)
        file = pack({label: weights[label] for label in labels if label in weights})
    program = _emitted(graph, place(settled, file), device, dialect)
    if labels:
        check_size(len(file.data))
        files, digests = {file.path: file.data}, {file.path: lambda: file.digest}
        program = replace(program, weights=files, digests=digests)
    if device is not None:
        want_kept(program, device)
    return program


def _emitted(asked: Graph, made: Graph, device: Target | None, dialect: Dialect | None) -> Program:
    """The text of a graph; ports keep the names and types of the graph that was asked for."""
    if device is None:
        emitted = emit(made, dialect=dialect or IOS18)
        return Program(emitted.text, {}, emitted.inputs, emitted.outputs)
    emitted = emit(numbered(made, device), dialect=dialect or device.dialect)

    def named(ports: tuple[Port, ...], names: Iterable[str], of: Mapping[str, Node]) -> Ports:
        pairs = zip(ports, names, strict=True)
        types = ((port, name, of[name].type) for port, name in pairs)
        return tuple(
            Port(name, port.symbol, port.type, None if type == port.type else type)
            for port, name, type in types
        )

    inputs = named(emitted.inputs, made.inputs, asked.inputs)
    outputs = named(emitted.outputs, made.outputs, asked.outputs)
    return Program(emitted.text, {}, inputs, outputs)


def _labels(graph: Graph) -> list[str]:
    """The labels of a graph's weights, each once, in the order of the body."""
    leaves = (node.op for node in graph.nodes)
    return list(dict.fromkeys(leaf.label for leaf in leaves if isinstance(leaf, Weight)))
