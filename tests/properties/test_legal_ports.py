"""Every legaliser of ports over random typed graphs, seen as a user sees them: fed and taken."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from strategies import feeds, graphs, weight_feeds

import orion_ane.ops as o
from orion_ane.ane.check import check
from orion_ane.ane.targets import TARGETS, Target
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import LimitError
from orion_ane.ir import Graph, verify
from orion_ane.mil.blob import pack
from orion_ane.mil.emit import emit
from orion_ane.mil.place import place
from orion_ane.mil.program import Port
from orion_ane.passes.legal import LEGAL, legalise
from orion_ane.runtime import backend
from orion_ane.runtime.surfaces import filled, taken
from orion_ane.types import Array, DType

PORTS = ("fp32_ports", "whole_rows", "uniform_ports", "ordered_ports")
CODES = {
    "fp32_ports": {"ANE104", "ANE153"},
    "whole_rows": {"ANE132"},
    "uniform_ports": {"ANE002", "ANE018", "ANE116"},
    "ordered_ports": {"ANE133", "ANE134"},
}
"""What each one mends, whatever the graph."""
RAN, RUN = ("strict", "m1", "m5", "paper"), (DType.FP16, DType.FP32, DType.BOOL)
LEAST = frozenset({"ANE002", "ANE004", "ANE018", "ANE115", "ANE116"})
DEVICES = {**TARGETS, "least": Target("least", LEAST)}


def ports(before: Graph, after: Graph) -> tuple[dict[str, Port], dict[str, Port]]:
    """What a user sees of two graphs, of which the second has larger ports."""

    def side(asked, made):
        return {n: Port(n, n, made[n].type, asked[n].type) for n in asked}

    return side(before.inputs, after.inputs), side(before.outputs, after.outputs)


def narrowed(value: Array, port: Port) -> Array:
    """A value as a port's surface holds it."""
    with np.errstate(over="ignore"):
        return value.astype(port.type.dtype.numpy).astype(value.dtype)


def assert_same_meaning(before: Graph, after: Graph, feed: dict, weights: dict) -> None:
    ins, outs = ports(before, after)
    rounded = {name: narrowed(value, ins[name]) for name, value in feed.items()}
    want = o.evaluate(before, rounded, weights)
    got = o.evaluate(after, {name: filled(ins[name], feed[name]) for name in ins}, weights)
    for name, value in want.items():
        wanted = narrowed(value, outs[name])
        np.testing.assert_array_equal(taken(outs[name], got[name]), wanted, name, strict=True)


@settings(max_examples=40)
@given(st.data(), graphs(max_nodes=8), st.sampled_from(sorted(DEVICES)))
def test_ports_that_fit_a_target_keep_the_meaning(data, graph, name):
    feed, weights = data.draw(feeds(graph)), data.draw(weight_feeds(graph))
    target = DEVICES[name]
    for pass_ in PORTS:
        after = LEGAL[pass_](graph, target)
        verify(after)
        assert LEGAL[pass_](after, target) is after, pass_
        if after is graph:
            continue
        assert set(after.inputs) == set(graph.inputs)
        assert set(after.outputs) == set(graph.outputs)
        assert_same_meaning(graph, after, feed, weights)
    legal = legalise(graph, target, PORTS)
    verify(legal)
    assert legalise(legal, target, PORTS) is legal
    assert_same_meaning(graph, legal, feed, weights)


@settings(max_examples=40)
@given(graphs(max_nodes=5), st.sampled_from(sorted(CODES)))
def test_each_legaliser_of_ports_mends_what_it_is_for(graph, name):
    target = Target("any", frozenset(CODES[name]))
    placed = place(
        graph,
        pack(
            {
                n.op.label: np.zeros(n.type.shape, n.type.dtype.numpy)
                for n in graph.nodes
                if isinstance(n.op, o.Weight)
            }
        ),
    )
    found = check(emit(placed).text, target)
    after = LEGAL[name](placed, target)
    assert (after is placed) <= (not found)
    assert not [d for d in check(emit(after).text, target) if d.code]
    nothing = Target("none", frozenset(DEVICES["strict"].limits - CODES[name] - {"ANE154"}))
    if name != "ordered_ports":  # which has more rows than these
        assert LEGAL[name](placed, nothing) is placed


@settings(max_examples=30)
@given(st.data(), graphs(max_nodes=8, smooth=True, dtypes=RUN), st.sampled_from(RAN))
def test_a_program_for_a_target_runs_as_its_graph_means_or_is_refused(data, graph, name):
    feed, weights = data.draw(feeds(graph)), data.draw(weight_feeds(graph))
    try:
        program = compile_graph(graph, weights, target=name)
    except LimitError as refused:
        event(", ".join(sorted({d.code for d in refused.diagnostics})))
        return
    event("ran")
    for kind, found in (("a", program.inputs), ("b", program.outputs)):
        symbols = [port.symbol for port in found]
        assert symbols == sorted(symbols)
        assert symbols == sorted(symbols, key=lambda symbol: f"{symbol}@output")
        assert all(symbol.startswith(kind) for symbol in symbols)
    got = backend("emulator", target=name, numerics="fp16").compile(program).run(feed)
    plain = backend("emulator", target=None).compile(compile_graph(graph, weights, target=None))
    for port in program.inputs:
        feed[port.name] = narrowed(feed[port.name], port)
    for port in program.outputs:
        want = narrowed(plain.run(feed)[port.name], port)
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got[port.name], want, rtol=0.02, atol=0.02)
        else:
            assert got[port.name].shape == want.shape
