"""Wide products in bf16 through torch, where processors have units for it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np

from orion_ane.engine.functions import Function
from orion_ane.engine.lowering import Lowering
from orion_ane.engine.plan.layout import THIN_COLUMNS
from orion_ane.engine.threads import Threads
from orion_ane.errors import ConfigError
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.leaf import Weight
from orion_ane.ops.linear import Conv1x1
from orion_ane.types import Array, TensorType

INSTALL = 'pip install "orion-ane[bf16]"'


def want_torch() -> None:
    """Refuse where torch is not installed.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("numerics", "bf16 needs torch", hint=INSTALL)


def has_wide_products(graph: Graph) -> bool:
    """Whether a product with a stored weight has many columns."""
    return any(_is_wide(node) for node in graph.nodes)


def _is_wide(node: Node) -> bool:
    if not isinstance(node.op, Conv1x1) or not isinstance(_stored(node.args[1]).op, Weight):
        return False
    n, _, h, s = node.args[0].type.shape
    return n * h * s > THIN_COLUMNS


def _stored(node: Node) -> Node:
    """The leaf that a weight is read from, behind changes of its type or its axes' order."""
    while len(node.args) == 1:
        (node,) = node.args
    return node


class BrainLowering(Lowering):
    """Wide products with stored weights in bf16, all else in fp32 with numpy."""

    def _call(self, node: Node) -> tuple[Function, tuple[Node, ...]]:
        args = tuple(map(self.known.origin, node.args))
        if _is_wide(node) and args[1] in self.constants:
            return _product(node.args[0].type, self.constants[args[1]], self.threads), args[:1]
        return super()._call(node)


def _product(x: TensorType, weight: Array, threads: Threads) -> Function:
    """out[o, s] = Σᵢ w[o, i] x[i, s] of both sides in bf16; torch rounds the sums to it too."""
    torch: Any = importlib.import_module("torch")
    n, inner, h, s = x.shape
    outer = weight.shape[0]
    wide = np.require(weight.reshape(outer, inner), np.float32, ("C", "W"))
    held: Any = torch.from_numpy(wide).to(torch.bfloat16)

    def product(x: Array) -> Array:
        torch.set_num_threads(threads.count)  # torch's own; numpy's wait meanwhile
        flat = x.transpose(1, 0, 2, 3).reshape(inner, n * h * s)
        flat = np.require(flat, np.float32, ("C", "W"))
        y = torch.mm(held, torch.from_numpy(flat).to(torch.bfloat16)).to(torch.float32).numpy()
        return np.ascontiguousarray(y.reshape(outer, n, h, s).transpose(1, 0, 2, 3))

    return product
