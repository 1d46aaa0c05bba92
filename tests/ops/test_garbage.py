"""Whatever a hostile text asks for, a row refuses it as a ShapeError or means what it inferred."""

from __future__ import annotations

import os
from dataclasses import fields
from math import inf, nan

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from ops.samples import SAMPLES
from ops.test_table import read_again, spelled
from strategies import arrays, shapes

from orion_ane.errors import MilError, ShapeError
from orion_ane.ir import MilArgs, Node, Op
from orion_ane.ops import BlobRef, const, evaluate_op, input_
from orion_ane.ops.leaf import Leaf
from orion_ane.types import DType, TensorType

HUGE = 1 << 70
SMALL_ELEMENTS = 4096
MAX_FP16 = 65504
EXAMPLES = int(os.environ.get("ORION_FUZZ", "10"))
"""For each row; ORION_FUZZ=1000 hunts."""

INTS = st.one_of(st.integers(-3, 4), st.integers(-HUGE, HUGE))
WHOLE = st.one_of(st.lists(st.integers(0, 3), max_size=6), st.lists(INTS, max_size=6)).map(tuple)
NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 65504.0, 1e9, 1e-8, 1e300, inf, -inf, nan]),
    st.floats(),
)
TYPES = st.builds(
    TensorType,
    st.sampled_from(DType),
    st.one_of(shapes(), shapes(), st.lists(st.integers(1, 200), max_size=5).map(tuple)),
)
PARAMETERS = {
    "int": INTS,
    "int | None": st.one_of(st.none(), INTS),
    "tuple[int, ...]": WHOLE,
    "tuple[bool, ...]": st.lists(st.booleans(), max_size=6).map(tuple),
    "float": NUMBERS,
    "bool": st.booleans(),
    "DType": st.sampled_from(DType),
    "str": st.text(max_size=3),
    "bytes": st.binary(max_size=16),
    "TensorType": TYPES,
    "BlobRef | None": st.sampled_from([None, BlobRef("@model_path/w", 64)]),
}


@st.composite
def garbage(draw, row: type[Op]) -> Op:
    return row(**{field.name: draw(PARAMETERS[field.type]) for field in fields(row)})


@st.composite
def operands(draw, name: str) -> tuple[TensorType, ...]:
    """The types of a sample of the row, or any."""
    if draw(st.booleans()):
        return draw(st.sampled_from([s for s in SAMPLES if s.op.name == name])).types
    return tuple(draw(st.lists(TYPES, max_size=4)))


@pytest.mark.parametrize("name", sorted(Op.table))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_any_parameters_are_refused_with_a_shape_error_or_mean_what_is_inferred(name, data):
    types = data.draw(operands(name))
    try:
        op = data.draw(garbage(Op.table[name]))
        node = Node(op, tuple(input_("x", of) for of in types))
    except ShapeError:
        return
    if isinstance(op, Leaf) or max(of.elements for of in (node.type, *types)) > SMALL_ELEMENTS:
        return
    event("taken")
    try:
        value = evaluate_op(op, tuple(data.draw(arrays(of)) for of in types), node.type)
    except ShapeError:
        assert getattr(op, "validate", False)  # it was asked to refuse such values
    else:
        assert TensorType.of(value) == node.type
    _, args = spelled(node)
    again = read_again(node, args)
    assert (again.op, again.args, args.leftover) == (node.op, node.args, ())
    if node.type.dtype.is_float:
        for arg, g in zip(node.args, op.grad(node, node), strict=True):
            assert g is None or g.type == arg.type


LITERALS = st.one_of(
    INTS,
    NUMBERS,
    WHOLE,
    st.booleans(),
    st.sampled_from(["valid", "custom", "constant", "fp16", "int32", "bool", "", "reflect"]),
    st.lists(st.booleans(), max_size=5).map(tuple),
    st.lists(NUMBERS, max_size=4).map(tuple),
    st.lists(st.text(max_size=2), min_size=1, max_size=2).map(tuple),
)
NAMES = [
    *("x", "y", "cond", "a", "b", "weight", "bias", "values", "axis", "axes", "keep_dims"),
    *("shape", "perm", "begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask"),
    *("pad", "pad_type", "mode", "constant_val", "alpha", "beta", "epsilon", "dtype", "groups"),
    *("strides", "dilations", "transpose_x", "transpose_y", "interleave", "num_splits"),
    *("split_sizes", "size", "block_size", "block_shape", "paddings", "crops", "upscale_factor"),
    *(
        "downscale_factor",
        "crop_height",
        "crop_width",
        "value",
        "ref_tensor",
        "start",
        "end",
        "step",
    ),
    *("ref_tensors", "begins", "ends", "end_masks", "indices", "k", "on_value", "off_value"),
]


VALUES = TYPES.map(lambda of: input_("v", of))
SPELLED = [s for s in SAMPLES if not isinstance(s.op, Leaf)]
READ = {name: [s for s in SPELLED if s.op.mil().op == name] for name in Op.readers}
READ["split"] = READ["slice_by_index"]
COMPOSED = {name for name, samples in READ.items() if not samples}
"""Statements that no row spells: they are read as several rows, or as constants."""
READ.update(dict.fromkeys(COMPOSED, READ["identity"] + READ["concat"]))


@st.composite
def statements(draw, op: str) -> MilArgs:
    """The arguments of a sample, some of them replaced and others added."""
    sample = draw(st.sampled_from(READ[op]))
    call = sample.op.mil()
    literals = dict(call.consts)
    nodes = dict(zip(call.operands, sample.nodes(), strict=False))
    tuples = {"values": sample.nodes()} if nodes.pop("values*", None) else {}
    spoilt = draw(st.sets(st.sampled_from([*call.consts, *NAMES]), max_size=2))
    for name in {*spoilt, *(("axis", "num_splits") if op == "split" else ())}:
        literals[name] = draw(LITERALS)
    if op in COMPOSED:  # their parameters are no row's: several are needed to get anywhere
        names = st.lists(st.sampled_from(NAMES), min_size=3, max_size=6, unique=True)
        literals.update((name, draw(LITERALS)) for name in draw(names))
    for name in draw(st.sets(st.sampled_from([*call.operands, *NAMES]), max_size=1)):
        nodes[name] = draw(VALUES)
    for name in draw(st.sets(st.sampled_from([*call.operands, *NAMES]), max_size=1)):
        tuples[name] = tuple(draw(st.lists(VALUES, max_size=3)))
    for name, value in literals.items():
        if isinstance(value, float) and abs(value) <= MAX_FP16:
            nodes[name] = const(value, draw(st.sampled_from((DType.FP16, DType.FP32))))
    opset, results = draw(st.integers(15, 18)), draw(st.integers(1, 4))
    return MilArgs(op, nodes=nodes, literals=literals, tuples=tuples, opset=opset, results=results)


@pytest.mark.parametrize("name", sorted(Op.readers))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_any_statement_is_refused_as_an_error_of_ours_or_read(name, data):
    args = data.draw(statements(name))
    try:
        read = Op.readers[name](args)
    except (ShapeError, MilError):
        event("refused")
        return
    event("read")
    for node in read if isinstance(read, tuple) else (read,):
        assert node.type == node.op.infer(tuple(arg.type for arg in node.args))
