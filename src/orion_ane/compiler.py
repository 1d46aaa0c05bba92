"""graph → passes → emit → Program, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from orion_ane.errors import MilError
from orion_ane.ir import Graph, verify
from orion_ane.mil.blob import WeightFile, check_size, pack
from orion_ane.mil.dialect import IOS18, Dialect
from orion_ane.mil.emit import emit
from orion_ane.mil.place import place
from orion_ane.mil.program import Program
from orion_ane.ops import Weight
from orion_ane.passes import DEFAULT, settle
from orion_ane.types import Array

NO_WEIGHTS: Mapping[str, Array] = MappingProxyType({})


def compile(
    graph: Graph,
    weights: WeightFile | Mapping[str, Array] = NO_WEIGHTS,
    *,
    pipeline: Iterable[str] = DEFAULT,
    dialect: Dialect = IOS18,
) -> Program:
    """The program of a graph; equal graphs and weights give equal programs.

    Args:
        graph: what to compile.
        weights: a file that may hold more than this graph needs, since programs share it; or the
            graph's own arrays by label, which are packed into a file of their own.
        pipeline: passes by name, run until none changes anything.
        dialect: the generation of MIL text.

    Raises:
        ShapeError: the graph breaks an invariant.
        ConfigError: there is no such pass.
        MilError: a weight is missing, has another type or, given as an array, is in no use; the
            weights are too large for one program; or a parameter cannot be spelled.
    """
    verify(graph)
    settled = settle(graph, pipeline)
    labels = _labels(settled)
    if isinstance(weights, WeightFile):
        file = weights
    else:
        unused = sorted(set(weights) - set(_labels(graph)))
        if unused:
            raise MilError("weights", "no leaf of the graph has this label", got=unused)
        file = pack({label: weights[label] for label in labels if label in weights})
    emitted = emit(place(settled, file), dialect=dialect)
    if not labels:
        return Program(emitted.text, {}, emitted.inputs, emitted.outputs)
    check_size(len(file.data))
    return Program(
        emitted.text,
        {file.path: file.data},
        emitted.inputs,
        emitted.outputs,
        digests={file.path: lambda: file.digest},
    )


def _labels(graph: Graph) -> list[str]:
    """The labels of a graph's weights, each once, in the order of the body."""
    leaves = (node.op for node in graph.nodes)
    return list(dict.fromkeys(leaf.label for leaf in leaves if isinstance(leaf, Weight)))
