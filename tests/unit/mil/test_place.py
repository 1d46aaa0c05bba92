from __future__ import annotations

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.errors import MilError
from orion_ane.ir import Graph, verify
from orion_ane.mil.blob import pack
from orion_ane.mil.place import place
from orion_ane.ops import BlobRef, Weight
from orion_ane.types import DType, TensorType

OF = TensorType(DType.FP16, (4, 3, 1, 1))


@pytest.fixture
def graph() -> Graph:
    x = o.input_("x", TensorType(DType.FP16, (1, 3, 1, 8)))
    y = o.conv1x1(x, o.weight("a", OF))
    return Graph({"x": x}, {"y": y + o.weight("b", TensorType(DType.FP16, (1, 4, 1, 1)))})


@pytest.fixture
def arrays(rng) -> dict:
    return {
        "other": rng.normal(size=99).astype(np.float32),
        "b": rng.normal(size=(1, 4, 1, 1)).astype(np.float16),
        "a": rng.normal(size=(4, 3, 1, 1)).astype(np.float16),
    }


def test_each_weight_learns_where_its_metadata_is(graph, arrays):
    file = pack(arrays, "@model_path/weights/w.bin")
    placed = place(graph, file)
    verify(placed)
    refs = {n.op.label: n.op.at for n in placed.nodes if isinstance(n.op, Weight)}
    assert refs == {k: BlobRef(file.path, file.offsets[k]) for k in "ab"}
    feeds = {"x": np.ones((1, 3, 1, 8), np.float16)}
    np.testing.assert_array_equal(
        o.evaluate(placed, feeds, arrays)["y"], o.evaluate(graph, feeds, arrays)["y"]
    )


def test_a_placed_graph_is_placed_already(graph, arrays):
    file = pack(arrays)
    placed = place(graph, file)
    assert place(placed, file) is placed
    assert place(graph, file) is not graph


def test_a_missing_weight_is_named(graph, arrays):
    del arrays["a"]
    with pytest.raises(MilError, match=r"weight a: missing in @model_path.*want fp16\[4,3,1,1\]"):
        place(graph, pack(arrays))


def test_a_weight_of_another_type_is_named(graph, arrays):
    arrays["b"] = arrays["b"].astype(np.float32)
    with pytest.raises(MilError, match=r"weight b: has another type.*got fp32\[1,4,1,1\], want"):
        place(graph, pack(arrays))


def test_axes_of_size_one_are_no_other_type(graph, arrays):
    """A matrix is a 1x1 kernel by the same bytes; what is transposed is not."""
    flat = {**arrays, "a": arrays["a"].reshape(4, 3), "b": arrays["b"].reshape(4)}
    file = pack(flat)
    assert place(graph, file).outputs["y"].type == graph.outputs["y"].type
    with pytest.raises(MilError, match=r"weight a: has another type.*got fp16\[3,4\]"):
        place(graph, pack({**flat, "a": flat["a"].T.copy()}))
