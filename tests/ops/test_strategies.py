"""The random graphs are what they promise to be, since every property test stands on them."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops.samples import CORE_ROWS
from strategies import FLOATS, GROWERS, LIMIT, STEPS, arrays, feeds, graphs, types, weight_feeds

from orion_ane.ir import verify
from orion_ane.ops import evaluate

LEAVES = {"input", "const", "weight"}
ROUNDING = 1.01  # a bound is kept in exact arithmetic, values are rounded


def test_every_row_is_grown():
    assert set(GROWERS) | LEAVES == set(CORE_ROWS)


@given(st.data(), types())
def test_an_array_has_its_type_and_is_finite(data, of):
    array = data.draw(arrays(of))
    assert (array.dtype, array.shape) == (of.dtype.numpy, of.shape)
    assert np.isfinite(array.astype(np.float64)).all()


@given(st.data(), graphs())
def test_a_random_graph_is_true_and_its_values_are_moderate(data, graph):
    verify(graph)
    assert all(node.args for node in graph.outputs.values())  # made by an op
    results = evaluate(graph, data.draw(feeds(graph)), data.draw(weight_feeds(graph)))
    for name, node in graph.outputs.items():
        assert results[name].dtype == node.type.dtype.numpy
        assert np.abs(results[name].astype(np.float64)).max() <= LIMIT * ROUNDING


@given(graphs(smooth=True, dtypes=FLOATS, weights=False))
def test_a_smooth_graph_has_no_steps_and_asked_for_no_weights_has_none(graph):
    assert not {node.op.name for node in graph.nodes} & (STEPS | {"weight"})
    assert {node.type.dtype for node in graph.nodes} <= set(FLOATS)


def test_random_graphs_reach_every_row_and_every_rank():
    seen: Counter[str] = Counter()

    @settings(
        max_examples=150, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(graphs())
    def look(graph):
        seen.update(node.op.name for node in graph.nodes)
        seen.update(f"rank {node.type.rank}" for node in graph.nodes)
        seen.update(f"inputs {len(graph.inputs)}" for _ in "x")
        seen.update(
            ["shared"] if len(set(map(id, graph.outputs.values()))) < len(graph.outputs) else []
        )

    look()
    wanted = {*CORE_ROWS, *(f"rank {n}" for n in range(6)), "inputs 1", "inputs 3", "shared"}
    assert wanted - set(seen) == set()
