"""The text of every row against coremltools' own table of ops, at iOS18."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from ops.samples import SAMPLES, Sample
from oracles import LATER, oracle

from orion_ane.ir import Graph, Node
from orion_ane.mil import emit, parse_graph
from orion_ane.ops import Const
from orion_ane.ops.leaf import Leaf

CALL = re.compile(r" = (?!const\()(\w+)\((.*)\)\[name = ")
ARGUMENT = re.compile(r"(\w+) = (\([^()]*\)|\w+)")
STRING = re.compile(r'string (c\d+) = const\(\)\[name = string\("c\d+"\), val = string\("(\w+)"')

FIXED = {
    *("weight", "bias", "gamma", "beta", "alpha", "mean", "variance"),
    *("quantized_data", "data", "scale", "zero_point", "offset"),
}
"""Operands that must be constants there, in some rows at least."""
INT32_ONLY = {"scatter", "scatter_along_axis", "scatter_nd", "one_hot", "slice_by_size"}
"""Statements whose indices have one type there."""


def in_int32(sample: Sample) -> Sample:
    """The sample with indices of the type that its statement has there."""
    if sample.op.mil().op not in INT32_ONLY:
        return sample
    operands = (
        replace(x, type=re.sub(r"^uint\d+", "int32", x.type)) if x.type.startswith("uint") else x
        for x in sample.operands
    )
    return replace(sample, operands=tuple(operands))


def is_widened_by_its_condition(sample: Sample) -> bool:
    """Whether the result is one whose shape 9.0 gets wrong: it ignores select's condition."""
    shapes = [of.shape for of in sample.types]
    return sample.op.name == "select" and np.broadcast_shapes(*shapes[1:]) != np.broadcast_shapes(
        *shapes
    )


MADE = [
    in_int32(sample)
    for sample in SAMPLES
    if not isinstance(sample.op, Leaf)
    and () not in sample.op.mil().consts.values()  # a scalar has no axes there to name
    and not is_widened_by_its_condition(sample)
]


@pytest.fixture(scope="module")
def mil():
    """What the test needs of coremltools, without its chatter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        program = oracle("coremltools.converters.mil.mil")
        yield SimpleNamespace(
            mb=program.Builder,
            function=program.Function,
            types=program.types,
            ios18=oracle("coremltools").target.iOS18,
        )
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("sample", MADE, ids=str)
def test_coremltools_takes_the_statement_and_infers_the_same_type(sample, mil):
    """It knows the op, every parameter and its kind, misses none, and has no other default."""
    node = Node(sample.op, sample.nodes())
    text = emit(Graph({f"x{i}": x for i, x in enumerate(node.args)}, {"y": node})).text
    name, args = CALL.search(text).groups()
    keys = dict(ARGUMENT.findall(args))
    values = constants(text)
    inputs = {}
    for i, of in enumerate(x.type for x in node.args):
        fixed = FIXED & {key for key, name in keys.items() if name == f"x{i}"}
        if fixed:
            values[f"x{i}"] = np.ones(of.shape, of.dtype.numpy)[()]
        elif of.shape:
            element = getattr(mil.types, str(of.dtype))
            inputs[f"x{i}"] = mil.mb.placeholder(shape=of.shape, dtype=element)
        else:
            values[f"x{i}"] = of.dtype.numpy.type(1)  # an input is never a scalar there
    with mil.function(inputs, opset_version=mil.ios18) as function:
        values.update(function.inputs)
        given = {
            key: tuple(values[part] for part in re.findall(r"\w+", arg))
            if arg.startswith("(")
            else values[arg]
            for key, arg in keys.items()
        }
        result = getattr(mil.mb, name)(**given)
    if isinstance(result, tuple | list):
        result = result[node.op.mil().results.index(node.op)]
    assert result.shape == node.type.shape
    assert mil.types.builtin_to_string(result.dtype) == str(node.type.dtype)
    defaults = dict(result.op.default_inputs().items())
    assert {key for key, default in defaults.items() if default is not None} <= {*keys, *LATER}


def constants(text: str) -> dict[str, object]:
    """The constants of a text by name, as numpy has them: the parser hands them over."""
    found: dict[str, object] = dict(STRING.findall(text))
    names = [n for n in re.findall(r" (c\d+) = const", text) if n not in found]
    lines = text[: CALL.search(text).start()].splitlines()[:-1]
    if names:
        graph = parse_graph("\n".join([*lines, f"}} -> ({', '.join(names)});", "}"]))
        for n in names:
            (leaf,) = graph.outputs[n].args or (graph.outputs[n],)
            assert isinstance(leaf.op, Const)
            found[n] = leaf.op.value.copy()[()]
    return found
