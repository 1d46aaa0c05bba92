from __future__ import annotations

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane import passes
from orion_ane.errors import ConfigError, OrionError
from orion_ane.ir import Graph, verify
from orion_ane.passes.casts import is_exact
from orion_ane.types import DType, TensorType

OF = TensorType(DType.FP16, (4,))


def all_values(dtype: DType) -> np.ndarray:
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.itemsize <= 2:
        codes = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
        return codes.view(dtype.numpy)
    if dtype is DType.FP32:
        return np.array([0.1, 1e-40, -3e38, 65520, 2**24 + 2, np.inf], np.float32)
    info = np.iinfo(dtype.numpy)
    return np.array([info.min, info.max, info.max - 1, 2**24 + 1, 1], dtype.numpy)


@pytest.mark.parametrize("of", DType, ids=str)
@pytest.mark.parametrize("to", DType, ids=str)
def test_a_detour_is_exact_just_where_every_value_comes_back(of, to):
    values = all_values(of)
    with np.errstate(all="ignore"):
        wide = values.astype(to.numpy)
        back = wide.astype(of.numpy)
        doubles = values.astype(np.float64), wide.astype(np.float64)
    same_number = np.array_equal(*doubles, equal_nan=True)
    comes_back = back.tobytes() == values.tobytes() or (
        of.is_float and to.is_float and np.array_equal(back, values, equal_nan=True)
    )
    assert is_exact(of, to) == (same_number and comes_back)


def test_two_inputs_of_one_label_are_never_merged():
    a, b = o.input_("x", OF), o.input_("x", OF)
    graph = Graph({"a": a, "b": b}, {"y": o.exp(a) - o.exp(b)})
    assert passes.cse(graph) is graph


def test_equal_constants_and_weights_are_merged_wherever_they_are_made():
    x = o.input_("x", OF)
    y = (x + o.const(0.5, DType.FP16) + o.weight("w", OF)) * (
        x + o.const(0.5, DType.FP16) + o.weight("w", OF)
    )
    after = passes.cse(Graph({"x": x}, {"y": y}))
    assert len(after.nodes) == 1 + 2 + 2 + 1
    other = (x + o.weight("w", OF)) * (x + o.weight("v", OF))
    graph = Graph({"x": x}, {"y": other})
    assert passes.cse(graph) is graph


def test_minus_zero_is_not_told_from_zero_by_identities():
    x = o.input_("x", OF)
    graph = Graph({"x": x}, {"y": o.exp(x + o.const(-0.0, DType.FP16))})
    assert len(passes.identities(graph).nodes) == 2


def test_a_pipeline_runs_its_passes_once_and_in_order():
    x = o.input_("x", OF)
    through = o.cast(o.identity(o.cast(x, DType.FP32)), DType.FP16)
    graph = Graph({"x": x}, {"y": o.exp(through)})
    assert len(passes.apply(graph, ["casts", "identities"]).nodes) == 4
    assert len(passes.apply(graph, ["identities", "casts"]).nodes) == 2
    assert passes.apply(graph, []) is graph


def test_settling_runs_until_nothing_changes():
    x = o.input_("x", OF)
    through = o.cast(o.identity(o.cast(x, DType.FP32)), DType.FP16)
    graph = Graph({"x": x}, {"y": o.exp(through)})
    settled = passes.settle(graph, ["casts", "identities"])
    assert len(settled.nodes) == 2
    verify(settled)
    assert passes.settle(settled) is settled


def test_an_unknown_pass_is_named():
    graph = Graph({}, {"y": o.exp(o.const([1.0], DType.FP16))})
    with pytest.raises(ConfigError, match="no such pass: got fuse, want casts, cse, dce"):
        passes.settle(graph, ["casts", "fuse"])


def test_passes_that_undo_each_other_end_in_an_error(monkeypatch):
    x = o.input_("x", OF)

    def rename(graph: Graph) -> Graph:
        return Graph(graph.inputs, graph.outputs)

    monkeypatch.setattr("orion_ane.passes.pipeline.PASSES", {"rename": rename})
    with pytest.raises(OrionError, match="does not settle"):
        passes.settle(Graph({"x": x}, {"y": o.exp(x)}), ["rename"])


def test_the_default_pipeline_names_passes():
    assert set(passes.DEFAULT) <= set(passes.PASSES)
