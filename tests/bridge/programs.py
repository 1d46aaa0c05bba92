"""Programs that show which weights they run with."""

from __future__ import annotations

import numpy as np

from orion_ane.compiler import compile as compile_graph
from orion_ane.ir import Graph
from orion_ane.mil import Program
from orion_ane.ops import input_, weight
from orion_ane.runtime.backends.emulator import Emulator
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
    """What the emulator says, which the tests of numerics hold to the device."""
    (found,) = EMULATOR.compile(scaled(by)).run(fed).values()
    return found


EMULATOR = Emulator(threads=1)
