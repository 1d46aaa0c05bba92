"""Programs that show which weights they run with."""

from __future__ import annotations

import numpy as np

from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.mil import Program
from orion_ane.mil.parse import parse_graph
from orion_ane.ops import Weight, evaluate, input_, weight
from orion_ane.types import DType, TensorType

OF = TensorType(DType.FP16, (1, 16, 1, 64))


def scaled(by: float, *, name: str = "y") -> Program:
    """name = by * x - shift."""
    x, shift, w = input_("x", OF), input_("shift", OF), weight("w", OF)
    graph = Graph({"x": x, "shift": shift}, {name: x * w - shift})
    return compile_graph(graph, {"w": np.full(OF.shape, by, np.float16)})


def feed(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=OF.shape).astype(np.float16) for name in ("x", "shift")}


def answer(by: float, fed: dict[str, np.ndarray]) -> np.ndarray:
    """The same graph, evaluated op by op."""
    program = scaled(by)
    graph = parse_graph(program.text)
    (label,) = (node.op.label for node in graph.nodes if isinstance(node.op, Weight))
    named = {port.symbol: fed[port.name] for port in program.inputs}
    (found,) = evaluate(graph, named, {label: np.full(OF.shape, by, np.float16)}).values()
    return found
