"""The numpy meaning of a graph: the oracle of passes and devices, not a fast path."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orion_ane.errors import ShapeError
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Arrays, Op
from orion_ane.types import Array, TensorType


def evaluate_op(op: Op, args: Arrays, result: TensorType) -> Array:
    """One op on arrays of its declared types: computed in fp32, rounded once to the result's type.

    Source: onnxruntime's fp16 kernels do the same, bit for bit (MIL reference, 4.1).
    """
    wide = tuple(a.astype(np.float32) if a.dtype == np.float16 else a for a in args)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(op.eval(wide)).astype(result.dtype.numpy, copy=False)


def evaluate(
    graph: Graph, inputs: Mapping[str, Array], weights: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """The outputs of a graph, by name.

    Args:
        graph: what to evaluate.
        inputs: a value for each input, by name.
        weights: a value for each weight, by label.

    Raises:
        ShapeError: a value is missing or has another type than its leaf.
    """
    names = {id(node): name for name, node in graph.inputs.items()}
    values: dict[int, Array] = {}
    for node in graph.nodes:
        if node.op.name in ("input", "weight"):
            name = names.get(id(node), getattr(node.op, "label", ""))
            found = (inputs if id(node) in names else weights or {}).get(name)
            want = (node.type.dtype.numpy, node.type.shape)
            if found is None or (found.dtype, found.shape) != want:
                got = None if found is None else f"{found.dtype}{list(found.shape)}"
                raise ShapeError(
                    f"{node.op.name} {name}", "no fitting value", got=got, want=node.type
                )
            values[id(node)] = found
        else:
            args = tuple(values[id(arg)] for arg in node.args)
            values[id(node)] = evaluate_op(node.op, args, node.type)
    return {name: values[id(node)] for name, node in graph.outputs.items()}
