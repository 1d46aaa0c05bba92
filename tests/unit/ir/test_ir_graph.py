"""A graph is sorted, closed and true; two of the same meaning are isomorphic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.samples import typed
from strategies import feeds, graphs, weight_feeds

from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, Node, Op, isomorphic, verify
from orion_ane.ir.graph import toposort
from orion_ane.ops import BlobRef, Weight, const, evaluate, exp, identity, input_, tanh, weight
from orion_ane.types import DType

DEEP = 50_000
EXAMPLES = 40


def x_of(label: str = "x") -> Node:
    return input_(label, typed("fp32[2,3]"))


def rebuilt(graph: Graph) -> Graph:
    """The graph again, of nodes of its own; nothing shared twice is shared once."""
    new: dict[int, Node] = {}
    for node in graph.nodes:
        new[id(node)] = Node(node.op, tuple(new[id(arg)] for arg in node.args))
    return Graph(
        {name: new[id(node)] for name, node in graph.inputs.items()},
        {name: new[id(node)] for name, node in graph.outputs.items()},
    )


def unshared(graph: Graph) -> Graph:
    """The graph in which every use of a node has a node of its own."""
    leaves = {id(node): node for node in graph.inputs.values()}

    def copy(node: Node) -> Node:
        return leaves.get(id(node)) or Node(node.op, tuple(map(copy, node.args)))

    return Graph(graph.inputs, {name: copy(node) for name, node in graph.outputs.items()})


# order


@settings(max_examples=EXAMPLES)
@given(graphs())
def test_every_node_is_listed_once_after_its_operands(graph):
    place = {id(node): i for i, node in enumerate(graph.nodes)}
    assert len(place) == len(graph.nodes)
    assert all(place[id(arg)] < place[id(node)] for node in graph.nodes for arg in node.args)
    assert list(graph.nodes[: len(graph.inputs)]) == list(graph.inputs.values())
    used = {id(arg) for node in graph.nodes for arg in node.args}
    ends = {id(node) for node in (*graph.inputs.values(), *graph.outputs.values())}
    assert set(place) == used | ends  # and nothing that no output needs


@settings(max_examples=EXAMPLES)
@given(graphs())
def test_equal_graphs_list_alike(graph):
    assert [n.op for n in rebuilt(graph).nodes] == [n.op for n in graph.nodes]


def test_a_deep_chain_is_sorted_checked_compared_and_run_without_recursion():
    x = input_("x", typed("fp32[1]"))
    y = x
    for _ in range(DEEP):
        y = -y
    graph = Graph({"x": x}, {"y": y})  # a walk of each path would not end
    assert len(graph.nodes) == DEEP + 1
    verify(graph)
    assert isomorphic(graph, graph)
    assert evaluate(graph, {"x": np.ones(1, np.float32)})["y"] == 1


def test_shared_nodes_are_walked_once():
    y = x_of()
    for _ in range(200):
        y = y + y  # 2²⁰⁰ paths
    assert len(toposort([y])) == 201


def test_operands_come_in_their_order_and_roots_in_theirs():
    a, b = x_of("a"), x_of("b")
    z = b + a
    assert toposort([z]) == (b, a, z)
    assert toposort([a, z, b]) == (a, b, z)
    assert toposort([]) == ()


# boundary


def test_a_graph_has_an_output():
    with pytest.raises(ShapeError, match="graph: no output"):
        Graph({"x": x_of()}, {})


def test_an_input_that_is_used_is_declared():
    x, other = x_of(), x_of("other")
    with pytest.raises(ShapeError, match=r"graph: an input is used but not declared: got fp32"):
        Graph({"x": x}, {"y": x + other})


def test_an_input_that_nothing_uses_stays():
    x, spare = x_of(), x_of("spare")
    graph = Graph({"x": x, "spare": spare}, {"y": exp(x)})
    assert graph.nodes[1] is spare


def test_an_input_that_is_returned_goes_through_identity():
    x = x_of()
    graph = Graph({"x": x}, {"y": x, "z": exp(x)})
    assert graph.outputs["y"].op.name == "identity"
    assert graph.outputs["y"].args == (x,)
    verify(graph)
    again = Graph(graph.inputs, graph.outputs)
    assert again.outputs["y"] is graph.outputs["y"]


def test_a_graph_and_its_nodes_are_frozen():
    x = x_of()
    inputs = {"x": x}
    graph = Graph(inputs, {"y": exp(x)})
    inputs["z"] = x
    assert list(graph.inputs) == ["x"]
    with pytest.raises(TypeError):
        graph.outputs["y"] = x
    with pytest.raises(AttributeError):
        graph.nodes = ()
    with pytest.raises(AttributeError):
        x.args = ()


# verify


@settings(max_examples=EXAMPLES)
@given(graphs())
def test_what_is_built_is_true(graph):
    verify(graph)


def tampered(graph: Graph, **fields) -> Graph:
    for name, value in fields.items():
        object.__setattr__(graph, name, value)
    return graph


def test_verify_finds_what_a_broken_pass_would_leave():
    x = x_of()
    y = exp(x)

    def graph() -> Graph:
        return Graph({"x": x}, {"y": y})

    lying = exp(x)
    object.__setattr__(lying, "type", typed("fp16[2,3]"))
    for broken, says in [
        (tampered(graph(), nodes=(y, x)), "a node comes before its operand"),
        (tampered(graph(), nodes=(x, y, y)), "a node is listed twice"),
        (tampered(graph(), outputs={"y": tanh(x)}), "output y is not in the body"),
        (tampered(graph(), inputs={"x": y}), "input x is not an input leaf"),
        (tampered(graph(), inputs={"x": x, "z": x}), "one leaf is declared as two inputs"),
        (tampered(graph(), nodes=(x, lying)), "a node's type is not what its op infers"),
    ]:
        with pytest.raises(ShapeError, match=f"graph: {says}"):
            verify(broken)


def test_one_weight_has_one_type():
    a, b = weight("w", typed("fp16[2,3]")), weight("w", typed("fp16[3]"))
    with pytest.raises(ShapeError, match=r"one weight has two types: got w fp16\[2,3\] and fp16"):
        verify(Graph({}, {"y": a + b}))
    verify(Graph({}, {"y": a + weight("w", typed("fp16[2,3]"))}))


# isomorphic


@settings(max_examples=EXAMPLES)
@given(graphs())
def test_a_graph_is_isomorphic_to_itself_rebuilt(graph):
    assert isomorphic(graph, rebuilt(graph))
    assert isomorphic(rebuilt(graph), graph)


@settings(max_examples=EXAMPLES)
@given(graphs(max_nodes=8))
def test_sharing_does_not_matter(graph):
    assert isomorphic(graph, unshared(graph))


@settings(max_examples=EXAMPLES)
@given(st.data(), graphs(max_nodes=8), graphs(max_nodes=8))
def test_what_is_isomorphic_computes_the_same(data, a, b):
    if isomorphic(a, b):
        fed, weights = data.draw(feeds(a)), data.draw(weight_feeds(a))
        ours, theirs = evaluate(a, fed, weights), evaluate(b, fed, weights)
        assert all(np.array_equal(ours[k], theirs[k], equal_nan=True) for k in ours)


def test_what_differs_is_not_isomorphic():
    x, y = x_of(), x_of("y")
    base = Graph({"x": x, "y": y}, {"z": x - y, "e": exp(x)})
    small, w = input_("x", typed("fp32[3]")), weight("w", typed("fp32[2,3]"))
    placed = Node(Weight("w", w.type, BlobRef("p", 64)))
    two = Graph({"x": x}, {"z": x + const(2, DType.FP32), "e": exp(x)})
    others = [
        Graph({"y": y, "x": x}, {"z": x - y, "e": exp(x)}),  # another order of inputs
        Graph({"x": x, "y": y}, {"e": exp(x), "z": x - y}),  # of outputs
        Graph({"x": x, "y": y}, {"z": y - x, "e": exp(x)}),  # of operands
        Graph({"x": y, "y": x}, {"z": x - y, "e": exp(x)}),  # the names change places
        Graph({"x": x, "y": y}, {"z": x - y, "e": exp(y)}),
        Graph({"x": x, "y": y}, {"z": x - y, "e": tanh(x)}),
        Graph({"x": x, "y": y}, {"z": x - y, "f": exp(x)}),
        Graph({"x": small, "y": y}, {"z": small - y, "e": exp(small)}),
        two,
    ]
    assert not any(isomorphic(base, other) for other in others)
    assert not isomorphic(
        two, Graph({"x": x}, {"z": x + const(3, DType.FP32), "e": exp(x)})
    )  # another constant
    assert not isomorphic(Graph({}, {"z": exp(w)}), Graph({}, {"z": exp(placed)}))


def test_an_input_that_nothing_uses_counts():
    x, a = x_of(), input_("a", typed("fp32[1]"))
    b = input_("a", typed("fp32[2]"))
    assert not isomorphic(Graph({"x": x, "a": a}, {"y": exp(x)}), Graph({"x": x}, {"y": exp(x)}))
    assert not isomorphic(
        Graph({"x": x, "a": a}, {"y": exp(x)}), Graph({"x": x, "a": b}, {"y": exp(x)})
    )


def test_the_label_of_an_input_does_not_count():
    x, y = x_of(), x_of("another label")
    assert isomorphic(Graph({"x": x}, {"y": exp(x)}), Graph({"x": y}, {"y": exp(y)}))


# nodes and rows


def test_operators_build_nodes():
    x, y = x_of(), x_of("y")
    built = [(x + y).op.name, (x - y).op.name, (x * y).op.name, (x / y).op.name, (-x).op.name]
    assert built == ["add", "sub", "mul", "real_div", "neg"]
    assert (x - y).args == (x, y)


def test_nodes_are_compared_by_identity_and_ops_by_value():
    x = x_of()
    assert exp(x) != exp(x)
    assert exp(x).op == exp(x).op
    assert len({exp(x), exp(x)}) == 2
    assert identity(x).op != exp(x).op
    graph = Graph({"x": x}, {"y": exp(x)})
    assert graph != Graph(graph.inputs, graph.outputs)  # isomorphic is another question
    assert {graph: 1}[graph] == 1


def test_a_node_prints_its_type_its_op_and_its_operands():
    x = x_of()
    assert repr(x + x) == "fp32[2,3] Add()(fp32[2,3], fp32[2,3])"


def test_a_row_is_claimed_once():
    for name, mil in (("add", "other"), ("other", "add")):
        with pytest.raises(TypeError, match=r"op table: .* is claimed twice"):
            type("Again", (Op,), {}, name=name, mil=mil)
    assert "other" not in Op.table
    assert "other" not in Op.readers
