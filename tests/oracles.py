"""What the tests compare against: other people's libraries, and float64."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from types import ModuleType

import numpy as np
import pytest

from orion_ane.ir import Node
from orion_ane.ir.graph import toposort
from orion_ane.ops import Const
from orion_ane.ops.shape import Cast
from orion_ane.types import Array

LATER = {
    *("batch_dims", "validate_indices", "sort", "return_indices", "output_indices_dtype"),
    "spatial_scale",
}
"""Parameters of Core ML that older opsets lack: they are written where they are not usual."""


def oracle(module: str) -> ModuleType:
    """A library to compare with; where it is missing, CI fails and a person's test is skipped."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"the oracle {module} is missing: {missing}", pytrace=False)
        reason = f"the oracle {module} is not installed: pip install '.[oracles]' in a checkout"
        pytest.skip(reason, allow_module_level=True)


def torch() -> ModuleType:
    """PyTorch on one thread, so that its sums keep one order."""
    module = oracle("torch")
    module.set_num_threads(1)
    return module


def evaluate64(outputs: Iterable[Node], fed: Mapping[Node, Array]) -> list[Array]:
    """The values of nodes in float64, whatever float type they declare.

    Constants are taken as they are stored, casts between floats round nothing; integers and
    bools stay what they are.  This is the meaning that finite differences may be taken of.
    """
    ends = list(outputs)
    values: dict[int, Array] = {id(leaf): wide(value) for leaf, value in fed.items()}
    for node in toposort(ends):
        if id(node) in values:
            continue
        args = tuple(values[id(arg)] for arg in node.args)
        match node.op:
            case Const() as leaf:
                values[id(node)] = wide(leaf.value)
            case Cast(to=to) if to.is_float:
                values[id(node)] = args[0].astype(np.float64)
            case op:
                values[id(node)] = op.eval(args)
    return [values[id(end)] for end in ends]


def wide(value: Array) -> Array:
    """The value in float64, where it is a float."""
    return value.astype(np.float64) if value.dtype.kind == "f" else value
