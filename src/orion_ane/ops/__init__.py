"""The op table: importing this package fills `Op.table`."""

import orion_ane.ops.foreign  # noqa: F401 (fills the table)
from orion_ane.ops.arithmetic import greater_equal, maximum, power, select, unbroadcast
from orion_ane.ops.curve import clip, exp, relu, rsqrt, sigmoid, sqrt, tanh
from orion_ane.ops.evaluate import evaluate, evaluate_op
from orion_ane.ops.leaf import BlobRef, Const, Input, Weight, const, input_, weight
from orion_ane.ops.linear import conv1x1, matmul
from orion_ane.ops.reduction import reduce_max, reduce_mean, reduce_sum, softmax
from orion_ane.ops.shape import (
    cast,
    concat,
    identity,
    pad,
    reshape,
    slice_by_index,
    transpose,
)

__all__ = [
    "BlobRef",
    "Const",
    "Input",
    "Weight",
    "cast",
    "clip",
    "concat",
    "const",
    "conv1x1",
    "evaluate",
    "evaluate_op",
    "exp",
    "greater_equal",
    "identity",
    "input_",
    "matmul",
    "maximum",
    "pad",
    "power",
    "reduce_max",
    "reduce_mean",
    "reduce_sum",
    "relu",
    "reshape",
    "rsqrt",
    "select",
    "sigmoid",
    "slice_by_index",
    "softmax",
    "sqrt",
    "tanh",
    "transpose",
    "unbroadcast",
    "weight",
]
