"""A bound run reads and writes the same arrays each time, with the weights of that moment."""

from __future__ import annotations

import numpy as np
import pytest

from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import BackendError
from orion_ane.ir import Graph
from orion_ane.mil import pack
from orion_ane.ops import conv1x1, input_, relu, weight
from orion_ane.runtime.registry import backend
from orion_ane.types import DType, TensorType

OF = TensorType(DType.FP32, (1, 64, 1, 1))


def program(target=None):
    x = input_("x", OF)
    graph = Graph({"x": x}, {"y": conv1x1(x, weight("w", TensorType(DType.FP32, (64, 64, 1, 1))))})
    return compile_graph(
        graph, pack({"w": np.eye(64, dtype=np.float32)[..., None, None]}), target=target
    )


@pytest.fixture
def ports(rng):
    return {"x": rng.standard_normal(OF.shape, dtype=np.float32)}, {
        "y": np.empty(OF.shape, np.float32)
    }


def test_a_bound_run_follows_what_is_written_to_its_inputs(ports):
    inputs, outputs = ports
    run = backend("cpu").compile(program()).bind(inputs, outputs)
    for _ in range(2):
        run()
        np.testing.assert_array_equal(outputs["y"], inputs["x"])
        inputs["x"] += 1


def test_a_bound_run_has_the_weights_of_the_last_reload(ports):
    inputs, outputs = ports
    loaded = backend("cpu").compile(program())
    run = loaded.bind(inputs, outputs)
    run()
    twice = pack({"w": 2 * np.eye(64, dtype=np.float32)[..., None, None]})
    loaded.reload({twice.path: twice.data})
    run()
    np.testing.assert_array_equal(outputs["y"], 2 * inputs["x"])


def test_a_bound_run_of_a_closed_program_is_refused(ports):
    loaded = backend("cpu").compile(program())
    run = loaded.bind(*ports)
    run()
    loaded.close()
    with pytest.raises(BackendError, match=r"is closed"):
        run()


def test_arrays_of_another_type_are_refused(ports):
    inputs, outputs = ports
    loaded = backend("cpu").compile(program())
    with pytest.raises(BackendError, match=r"x: has another type"):
        loaded.bind({"x": inputs["x"].astype(np.float16)}, outputs)


def test_nothing_is_bound_where_a_run_has_more_to_do(ports):
    inputs, outputs = ports
    x = input_("x", OF)
    small = compile_graph(Graph({"x": x}, {"y": relu(x)}), {}, target=None)
    assert backend("cpu").compile(small).bind(inputs, outputs) is None, "a tape"
    strict = program("strict")
    assert backend("emulator").compile(strict).bind(inputs, outputs) is None
    assert backend("cpu").compile(strict).bind(inputs, outputs) is None, "padded surfaces"
