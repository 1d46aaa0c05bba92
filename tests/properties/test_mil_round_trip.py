"""Graph to text and back, over random graphs, in every dialect and both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import feeds, graphs

from orion_ane.ir import Graph, isomorphic, verify
from orion_ane.mil import (
    DIALECTS,
    Function,
    Module,
    emit,
    emit_module,
    pack,
    parse,
    parse_graph,
    place,
    returned,
)
from orion_ane.ops import Weight, evaluate

FEW = settings(max_examples=40)
DIALECT = st.sampled_from(list(DIALECTS.values()))


@st.composite
def placed_graphs(draw) -> Graph:
    """Random graphs whose weights lie in a file."""
    graph = draw(graphs())
    weights = {
        node.op.label: np.zeros(node.type.shape, node.type.dtype.numpy)
        for node in graph.nodes
        if isinstance(node.op, Weight)
    }
    return place(graph, pack(weights)) if weights else graph


@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
@given(graph=placed_graphs(), dialect=DIALECT)
def test_a_graph_reads_back_as_itself_and_prints_as_it_was(short, graph, dialect):
    text = emit(graph, dialect=dialect, short=short).text
    module = parse(text)
    again = module.functions["main"].graph
    verify(again)
    assert isomorphic(again, returned(graph)), text
    assert module.dialect is dialect
    assert module.functions["main"].opset == dialect.opset
    assert emit_module(module, short=short) == text


@FEW
@given(graph=placed_graphs())
def test_both_forms_and_all_dialects_say_the_same(graph):
    first, *rest = (
        parse_graph(emit(graph, dialect=dialect, short=short).text)
        for dialect in DIALECTS.values()
        for short in (False, True)
    )
    assert all(isomorphic(first, other) for other in rest)


@settings(max_examples=15)
@given(one=placed_graphs(), other=placed_graphs(), dialect=DIALECT)
def test_functions_do_not_meet_in_a_module(one, other, dialect):
    functions = {"a": Function(one, dialect.opset), "b": Function(other, dialect.opset)}
    again = parse(emit_module(Module(functions, dialect)))
    for name, function in functions.items():
        assert isomorphic(again.functions[name].graph, returned(function.graph))


@FEW
@given(data=st.data(), graph=graphs(weights=False))
def test_a_text_means_what_its_graph_does(data, graph):
    fed = data.draw(feeds(graph))
    emitted = emit(graph)
    renamed = {port.symbol: fed[port.name] for port in emitted.inputs}
    found = evaluate(parse_graph(emitted.text), renamed)
    want = evaluate(graph, fed)
    for port in emitted.outputs:
        assert np.array_equal(found[port.symbol], want[port.name], equal_nan=True)


@FEW
@given(graph=placed_graphs(), names=st.permutations(["a/b", "a_b", "tensor", "x", "y", "λ", ""]))
def test_ports_keep_their_users_names_whatever_the_text_calls_them(graph, names):
    rename = iter(names)
    inputs = {next(rename): node for node in graph.inputs.values()}
    outputs = {next(rename): node for node in graph.outputs.values()}
    graph = Graph(inputs, outputs)
    emitted = emit(graph)
    again = parse_graph(emitted.text)
    assert [port.name for port in emitted.inputs] == list(inputs)
    assert [port.symbol for port in emitted.inputs] == list(again.inputs)
    assert [port.name for port in emitted.outputs] == list(outputs)
    assert [port.symbol for port in emitted.outputs] == list(again.outputs)
    assert [port.type for port in emitted.outputs] == [n.type for n in again.outputs.values()]
