"""Products on a tape: what a plan computes of them, by its kernels.

So an op's sums are the same however a program is run, and the place of a row or a column shows in
none.  Of numpy's BLAS that is not so: its loops for small products, and for what is left of a side
by its blocks, sum in another order, and which sides those are depends on the processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from orion_ane.engine.functions import Function
from orion_ane.engine.threads import Threads
from orion_ane.engine.windows import windows
from orion_ane.ir.graph import Graph
from orion_ane.ir.node import Node
from orion_ane.ops.foreign.attention import Attention
from orion_ane.ops.foreign.conv import Conv
from orion_ane.ops.foreign.conv_transpose import ConvTranspose
from orion_ane.ops.foreign.linear import Linear
from orion_ane.ops.leaf import Weight, input_, weight
from orion_ane.ops.linear import Conv1x1, Matmul
from orion_ane.ops.shape import cast
from orion_ane.types import Array, DType, TensorType


def product_of(node: Node, constants: Mapping[int, Array], threads: Threads) -> Function | None:
    """The function that computes a node in fp32; None where it is no product of such numbers.

    Args:
        node: any.
        constants: operands by place.  A `conv1x1` reads a constant weight, fp16 or fp32, where it
            lies, which is none of the function's arguments.
        threads: who computes; how many does not show.
    """
    if not node.type.dtype.is_float:
        return None
    match node.op:
        case Conv1x1() | Matmul() as op:
            shapes = [arg.type.shape for arg in node.args]
            stored = constants.get(1) if isinstance(op, Conv1x1) else None
            return _planned(op, shapes, threads, stored)
        case Linear():
            return _linear(node, threads)
        case Conv() as op:
            return _convolution(node, op, threads)
        case ConvTranspose() as op:
            return _transposed(node, op, threads)
        case Attention() as op:
            return _attention(node, op, threads)
    return None


def multiply(x: Array, y: Array) -> Array:
    """X [M,K] y [K,N] in fp32, for who has no program; the number of processors does not show."""
    threads = Threads()
    product = _planned(Matmul(), [x.shape, y.shape], threads)
    with threads.turn:
        return product(x, y)


def _planned(
    op: Conv1x1 | Matmul,
    shapes: Sequence[tuple[int, ...]],
    threads: Threads,
    stored: Array | None = None,
) -> Function:
    """A product of fp32 arrays of these shapes, the second of which may be a stored one."""
    from orion_ane.engine.plan.plan import plan  # it imports numba, where kernels are not kept

    x, w = (input_(f"x{i}", TensorType(DType.FP32, shape)) for i, shape in enumerate(shapes))
    arrays: dict[Weight, Array] = {}
    inputs = {"x0": x, "x1": w}
    if stored is not None:
        leaf = weight("w", TensorType.of(stored))
        assert isinstance(leaf.op, Weight)
        arrays[leaf.op], w = stored, cast(leaf, DType.FP32)
        del inputs["x1"]
    y = Node(op, (x, w))
    made = plan(Graph(inputs, {"y": y}), arrays, rounds=False, threads=threads)

    def product(*args: Array) -> Array:
        out = np.empty(y.type.shape, np.float32)
        made.bind(dict(zip(inputs, args, strict=True)), {"y": out}).work()
        return out

    return product


def _linear(node: Node, threads: Threads) -> Function:
    """X wᵀ + bias."""
    x, w, _ = (arg.type.shape for arg in node.args)
    rows = prod(x[:-1])
    multiply = _planned(Matmul(ty=True), [(rows, x[-1]), w], threads)

    def product(x: Array, w: Array, bias: Array) -> Array:
        y: Array = multiply(x.reshape(rows, -1), w)
        return y.reshape(node.type.shape) + bias

    return product


def _convolution(node: Node, op: Conv, threads: Threads) -> Function:
    """A convolution of x, w and maybe a bias."""
    count, outer, *places = node.type.shape
    taps, groups = node.args[1].type.shape[1:], op.groups
    sides = [(groups, outer // groups, prod(taps)), (groups, count * prod(places), prod(taps))]
    multiply = _planned(Matmul(ty=True), sides, threads)

    def product(x: Array, w: Array, *bias: Array) -> Array:
        found: Array = multiply(w.reshape(sides[0]), windows(op, x, taps[1:]))
        y = np.moveaxis(found.reshape(outer, count, *places), 0, 1)
        return y + bias[0].reshape(outer, *(1,) * len(places)) if bias else y

    return product


def _transposed(node: Node, op: ConvTranspose, threads: Threads) -> Function:
    """A transposed convolution of x, w and maybe a bias."""
    (n, inner, *places), outer = node.args[0].type.shape, node.args[1].type.shape[1:]
    groups, inner = op.groups, inner // op.groups
    sides = [(groups, inner, prod(outer)), (n, groups, inner, prod(places))]
    multiply = _planned(Matmul(tx=True), sides, threads)

    def product(*args: Array) -> Array:
        found: Array = multiply(*op.sides(*args[:2]))
        return np.array(op.summed(found, args))  # a part of the sum may be left out

    return product


def _attention(node: Node, op: Attention, threads: Threads) -> Function:
    """softmax(q kᵀ / √E + mask) v."""
    q, k, v = (arg.type.shape for arg in node.args[:3])
    multiply = _planned(Matmul(ty=True), [q, k], threads)
    mix = _planned(Matmul(), [(*q[:-1], k[-2]), v], threads)

    def product(*args: Array) -> Array:
        found: Array = mix(op.shares(multiply(*args[:2]), args), args[2])
        return found

    return product
