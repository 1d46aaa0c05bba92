"""The laws of the op table, over every row and every sample."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ops.samples import ERRORS, ROWS, SAMPLES, Bad, Sample, typed
from oracles import evaluate64

from orion_ane.errors import ShapeError
from orion_ane.ir import Graph, MilArgs, Node, Op, isomorphic, verify
from orion_ane.mil import DEFAULT_PATH, DIALECTS, emit, parse_graph
from orion_ane.ops import BlobRef, Input, Weight, const, evaluate, evaluate_op, identity, input_
from orion_ane.ops.leaf import Leaf
from orion_ane.ops.rules import held
from orion_ane.types import DType, TensorType

STEP = 1e-6
FINITE_DIFFERENCE = 1e-8
"""Central differences in float64 err by STEP² and by 1e-16 / STEP, of values about one."""
FP32_CONSTANTS = 1e-6
"""A gradient graph holds its constants (1/n, p) in the type of its operands."""
FP16_CONSTANTS = 1e-3

MADE = [sample for sample in SAMPLES if not isinstance(sample.op, Leaf)]
STEPS = [s for s in MADE if not Node(s.op, s.nodes()).type.dtype.is_float]
"""Samples whose result is no float, so that there is no cotangent to hand back."""
LEAVES = [sample for sample in SAMPLES if isinstance(sample.op, Leaf)]


@pytest.mark.parametrize("name", sorted(Op.table))
def test_a_row_has_samples_errors_a_docstring_a_spelling_and_a_gradient_or_a_reason(name):
    row, cls = ROWS[name], Op.table[name]
    assert len(row.samples) >= 3
    assert row.errors
    assert all(type(entry.op) is cls for entry in (*row.samples, *row.errors))
    assert re.search(r"->", cls.__doc__), "the docstring gives the type rule"
    assert all(sample.op.mil().op for sample in row.samples)
    if any(gets_none(sample) for sample in SAMPLES if sample.op.name == name):
        assert "No gradient" in cls.__doc__


def test_only_rows_have_samples():
    assert set(ROWS) == set(Op.table)


@pytest.mark.parametrize("sample", MADE, ids=str)
def test_the_inferred_type_is_the_type_of_the_value(sample, rng):
    node = Node(sample.op, sample.nodes())
    value = evaluate_op(sample.op, sample.values(rng), node.type)
    assert TensorType.of(value) == node.type
    raw = np.asarray(sample.op.eval(sample.values(rng)))  # before it is rounded
    assert raw.shape == node.type.shape
    assert raw.dtype == node.type.dtype.numpy


@pytest.mark.parametrize("sample", LEAVES, ids=str)
def test_a_leaf_has_the_type_it_is_given(sample, rng):
    node = Node(sample.op)
    assert node.type == sample.op.of
    value = np.ones(node.type.shape, node.type.dtype.numpy)
    inputs = {"x": node} if sample.op.name == "input" else {}
    graph = Graph(inputs, {"y": identity(node)})
    verify(graph)
    y = evaluate(graph, {"x": value}, {"w": value})["y"]
    assert TensorType.of(y) == node.type


@pytest.mark.parametrize("sample", [s for s in STEPS if s.op.name == "greater_equal"], ids=str)
def test_a_step_has_no_gradient(sample):
    x, y = sample.nodes()
    assert sample.op.grad(Node(sample.op, (x, y)), x) == (None, None)


def gets_none(sample: Sample) -> bool:
    """Whether some operand that could have a gradient has none; leaves have no operand at all."""
    return bool(sample.stops) or not sample.operands


def gradients(sample: Sample) -> tuple[Node, Node, tuple[Node, ...], tuple[Node | None, ...]]:
    xs = sample.nodes()
    y = Node(sample.op, xs)
    dy = input_("dy", y.type)
    return y, dy, xs, sample.op.grad(y, dy)


@pytest.mark.parametrize("sample", [s for s in MADE if s not in STEPS], ids=str)
def test_a_cotangent_has_its_operands_type_and_is_none_where_it_is_said_to_be(sample):
    _, _, xs, found = gradients(sample)
    assert len(found) == len(xs)
    for i, (x, g) in enumerate(zip(xs, found, strict=True)):
        if i in sample.stops or not x.type.dtype.is_float:
            assert g is None
        else:
            assert g.type == x.type


@pytest.mark.parametrize("sample", [s for s in MADE if s not in STEPS], ids=str)
def test_a_gradient_agrees_with_finite_differences(sample, rng):
    y, dy, xs, found = gradients(sample)
    values = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in sample.values(rng)]
    weight = rng.standard_normal(y.type.shape)
    moved = [i for i, g in enumerate(found) if g is not None]
    ways = {i: rng.standard_normal(values[i].shape) for i in moved}

    def at(step: float) -> float:
        points = [v + step * ways[i] if i in ways else v for i, v in enumerate(values)]
        (value,) = evaluate64([y], dict(zip(xs, points, strict=True)))
        return float((value * weight).sum())

    slope = (at(STEP) - at(-STEP)) / (2 * STEP)
    fed = {**dict(zip(xs, values, strict=True)), dy: weight}
    grads = evaluate64([found[i] for i in moved], fed)
    claimed = sum(float((g * ways[i]).sum()) for g, i in zip(grads, moved, strict=True))
    # What rounding a constant of the gradient graph may cost, since its terms may cancel.
    scale = sum(float(np.abs(g * ways[i]).sum()) for g, i in zip(grads, moved, strict=True))
    floats = {x.type.dtype for x in (*xs, y)}
    rounding = FP16_CONSTANTS if DType.FP16 in floats else FP32_CONSTANTS
    assert claimed == pytest.approx(slope, rel=0, abs=(FINITE_DIFFERENCE + rounding * scale))


def spelled(node: Node, opset: int = 18) -> tuple[str, MilArgs]:
    """A node as its statement would be handed back by a parser."""
    call = node.op.mil()
    first = node.args[0].type.dtype
    nodes, literals, tuples = {}, dict(call.consts), {}
    if call.operands and call.operands[-1].endswith("*"):
        tuples[call.operands[0].removesuffix("*")] = node.args
    else:
        nodes = dict(zip(call.operands, node.args, strict=True))
    for name, value in call.consts.items():
        kind = value[0] if isinstance(value, tuple) and value else value
        if isinstance(kind, str) or value == ():
            continue
        if isinstance(kind, float):
            dtype = first if held(kind, first) == kind else DType.FP32
        else:
            dtype = DType.BOOL if isinstance(kind, bool) else DType.INT32
        nodes[name] = const(value, dtype)
    given = {"nodes": nodes, "literals": literals, "tuples": tuples}
    return call.op, MilArgs(call.op, **given, opset=opset, results=len(call.results) or 1)


def read_again(node: Node, args: MilArgs) -> Node:
    """What a reader makes of the statement that spells `node`, of its results that one."""
    call = node.op.mil()
    found = Op.readers[call.op](args)
    return found[call.results.index(node.op)] if isinstance(found, tuple) else found


@pytest.mark.parametrize("opset", [15, 18])
@pytest.mark.parametrize("sample", MADE, ids=str)
def test_a_spelling_reads_back_as_the_same_op_on_the_same_operands(sample, opset):
    node = Node(sample.op, sample.nodes())
    _, args = spelled(node, opset)
    again = read_again(node, args)
    assert (again.op, again.args) == (node.op, node.args)
    assert args.leftover == ()


@pytest.mark.parametrize("short", [False, True], ids=["device", "short"])
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("name", sorted(Op.table))
def test_a_text_reads_back_as_the_same_graph(name, dialect, short):
    for sample in (s for s in SAMPLES if s.op.name == name):
        xs, op = sample.nodes(), sample.op
        inputs = {f"x{i}": x for i, x in enumerate(xs)}
        if isinstance(op, Weight):
            op = replace(op, at=BlobRef(DEFAULT_PATH, 64))
        y = Node(op, xs)
        if isinstance(op, Input):
            inputs["x"] = y
        graph = Graph(inputs, {"y": y if y.args else identity(y)})
        text = emit(graph, dialect=dialect, short=short).text
        assert isomorphic(parse_graph(text), graph), text


def test_neg_has_no_statement_of_its_own():
    x = input_("x", typed("fp16[2]"))
    name, _ = spelled(-x)
    assert name == "mul"
    assert "neg" not in Op.readers


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: f"{e.op.name}: {e.says[:60]}")
def test_an_error_says_where_what_and_what_it_got(error: Bad):
    with pytest.raises(ShapeError) as caught:
        Node(error.op, tuple(input_(f"x{i}", typed(x)) for i, x in enumerate(error.operands)))
    message = str(caught.value)
    assert error.says in message
    assert message.startswith(f"{error.op.name}: ")
    assert not message.endswith(".")
    what = caught.value.what
    assert what[0].islower() or what.startswith("MIL")
