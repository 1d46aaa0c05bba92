"""Core ML's own op definitions take every spelling, and infer the type and value that we do."""

from __future__ import annotations

import warnings

import numpy as np
import oracles
import pytest
from ops.samples import SAMPLES, Sample

from orion_ane.ir import Node
from orion_ane.ops import evaluate_op
from orion_ane.ops.leaf import Leaf
from orion_ane.ops.rules import held
from orion_ane.types import DType

VI_ROUNDING = 2e-6
"""Its value inference computes in numpy, in another order than we do."""
MADE = [s for s in SAMPLES if not isinstance(s.op, Leaf)]
PLACED = ("gather", "scatter", "crop_resize", "slice_update")
"""Rows with a computed place, which it refuses where it lies outside; ours are drawn."""


def is_faulty_there(sample: Sample) -> bool:
    """Whether 9.0 stops with an error of its own: its exclusive sums cannot make their zeros."""
    return sample.op.name == "cumsum" and sample.op.mil().consts["exclusive"] is True


BUILT = [
    s
    for s in MADE
    if all(of.shape for of in s.types)
    and not s.op.name.startswith(PLACED)
    and not is_faulty_there(s)
]
"""Its builder makes scalars of other types than it is given."""


@pytest.fixture(scope="module")
def mil():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the torch it was not tested with
        oracles.oracle("coremltools")
        return oracles.oracle("coremltools.converters.mil.mil")


@pytest.fixture(scope="module")
def registry(mil):
    target = oracles.oracle("coremltools").target.iOS18
    ops = oracles.oracle("coremltools.converters.mil.mil.ops.registry").SSAOpRegistry.core_ops

    def found(name: str):
        versions = {v: op for v, op in ops[name].items() if v <= target}
        return versions[max(versions)]

    return found


def arguments(sample: Sample, values) -> dict:
    """The arguments of a sample's statement, as the builder takes them."""
    call, first = sample.op.mil(), sample.types[0].dtype
    if call.operands == ("values*",):
        args = {"values": list(values)}
    else:
        args = dict(zip(call.operands, values, strict=True))
    for name, value in call.consts.items():
        kind = value[0] if isinstance(value, tuple) and value else value
        if isinstance(kind, float):
            own = first if held(kind, first) == kind else DType.FP32
            args[name] = np.asarray(value, own.numpy)[()]
        else:
            element = np.bool_ if isinstance(kind, bool) else np.int32
            args[name] = np.asarray(value, element) if isinstance(value, tuple) else value
    return args


@pytest.mark.parametrize("sample", MADE, ids=str)
def test_a_spelling_names_parameters_that_exist_and_all_that_must_be_there(sample, registry):
    call = sample.op.mil()
    row = registry(call.op)
    known = set(row.input_spec.input_types)
    written = {name.removesuffix("*") for name in (*call.operands, *call.consts)}
    assert written <= known
    required = {name for name, spec in row.input_spec.input_types.items() if not spec.optional}
    assert required <= written


@pytest.mark.parametrize("sample", BUILT, ids=str)
def test_core_ml_infers_the_same_type_and_value(sample, mil, rng):
    target = oracles.oracle("coremltools").target.iOS18
    node = Node(sample.op, sample.nodes())
    call, values = sample.op.mil(), sample.values(rng)
    with mil.Function({}, opset_version=target):
        fed = [mil.Builder.const(val=v) for v in values]
        y = getattr(mil.Builder, call.op)(**arguments(sample, fed))
    if isinstance(y, tuple | list):
        y = y[call.results.index(sample.op)]
    defaults = {name for name, value in y.op.default_inputs().items() if value is not None}
    written = {*call.operands, *call.consts, *oracles.LATER}
    assert defaults <= written, "the device's parser wants them written"
    assert tuple(y.shape) == node.type.shape
    assert mil.types.builtin_to_string(y.dtype) == str(node.type.dtype)
    if y.val is not None and node.type.dtype is not DType.FP16:
        ours = evaluate_op(sample.op, values, node.type)
        np.testing.assert_allclose(y.val, ours, rtol=VI_ROUNDING, atol=VI_ROUNDING)
