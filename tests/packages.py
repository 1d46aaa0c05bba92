"""Graphs as Core ML passes them: what tests of packages share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from strategies import graphs

from orion_ane.ir import Graph, Node
from orion_ane.mil import pack, place
from orion_ane.ops import Weight, cast, input_, reshape
from orion_ane.types import DType

PASSED = (DType.FP16, DType.FP32, DType.INT32)


def presentable(graph: Graph) -> Graph:
    """The graph behind ports that Core ML has: of rank 1 or more, and no bools."""
    inputs, made = {}, {}
    for name, leaf in graph.inputs.items():
        of = leaf.type
        shown = of if of.dtype in PASSED else of.with_dtype(DType.INT32)
        inputs[name] = node = input_(name, shown.with_shape(shown.shape or (1,)))
        node = node if of.shape else reshape(node, ())
        made[leaf] = node if of.dtype in PASSED else cast(node, of.dtype)
    for node in graph.nodes:
        if node not in made:
            made[node] = Node(node.op, tuple(made[arg] for arg in node.args))
    outputs = {}
    for name, node in graph.outputs.items():
        end = made[node] if node.type.dtype in PASSED else cast(made[node], DType.INT32)
        outputs[name] = end if end.type.shape else reshape(end, (1,))
    return Graph(inputs, outputs)


@st.composite
def package_graphs(draw, **options) -> tuple[Graph, dict[str, np.ndarray]]:
    """Random graphs with ports as Core ML has them and their weights placed, and the weights."""
    graph = presentable(draw(graphs(**options)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    weights = {
        node.op.label: rng.uniform(-2, 2, node.type.shape).astype(node.type.dtype.numpy)
        for node in graph.nodes
        if isinstance(node.op, Weight)
    }
    return (place(graph, pack(weights)) if weights else graph), weights


def model_path(package: Path) -> Path:
    """Where a package's message lies."""
    manifest = json.loads((package / "Manifest.json").read_text())
    path = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    return package / "Data" / path
