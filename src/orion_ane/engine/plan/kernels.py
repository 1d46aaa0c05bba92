"""The inner loops of a plan over numbers side by side, and where a table says that they are.

Memory is told by address; numbers are fp32 where nothing else is said, and `n` is how many.  Each
loop is written out for LLVM, in vectors and then one number at a time: in Python it would take
several times as long to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from orion_ane.engine.jit import intrinsic
from orion_ane.engine.lanes import HALF, I64, SINGLE, Vectors, over
from orion_ane.engine.plan import layout
from orion_ane.engine.plan.code import pointer_at
from orion_ane.engine.plan.steps import exp_in, larger

_AT, _COUNT, _FLOAT = types.int64, types.int64, types.float32
_BASE, _OFFSET = int(layout.Of.BASE), int(layout.Of.OFFSET)


def whole(value: int) -> ir.Constant:
    """An integer, for LLVM."""
    return ir.Constant(I64, value)


def rounded_to_half(b: Any, x: Any) -> Any:
    """A vector of numbers, rounded to fp16."""
    return b.fpext(b.fptrunc(x, ir.VectorType(HALF, x.type.count)), x.type)


def rounded_if(b: Any, x: Any, asked: Any) -> Any:
    """A vector of numbers, rounded to fp16 if that is asked for."""
    return b.select(b.icmp_unsigned("!=", asked, whole(0)), rounded_to_half(b, x), x)


Writer = Callable[..., Any]


def _of_one(write: Writer) -> Any:
    @intrinsic
    def loop(_context: Any, _z: Any, _n: Any) -> Any:
        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            z = pointer_at(b, args[0], SINGLE)
            over(b, args[1], lambda v, k: v.store(write(b, v.load(z, k)), z, k))
            return context.get_dummy_value()

        return types.void(_AT, _COUNT), code

    return loop


def _of_number(write: Writer) -> Any:
    @intrinsic
    def loop(_context: Any, _z: Any, _number: Any, _n: Any) -> Any:
        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            z, number = pointer_at(b, args[0], SINGLE), args[1]
            over(b, args[2], lambda v, k: v.store(write(b, v.load(z, k), v.splat(number)), z, k))
            return context.get_dummy_value()

        return types.void(_AT, _FLOAT, _COUNT), code

    return loop


def _of_two(write: Writer) -> Any:
    @intrinsic
    def loop(_context: Any, _z: Any, _x: Any, _n: Any) -> Any:
        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            z, x = (pointer_at(b, at, SINGLE) for at in args[:2])
            over(b, args[2], lambda v, k: v.store(write(b, v.load(z, k), v.load(x, k)), z, k))
            return context.get_dummy_value()

        return types.void(_AT, _AT, _COUNT), code

    return loop


round_halves = _of_one(rounded_to_half)
"""z [n], rounded to fp16."""
exp_each = _of_one(exp_in)
"""z [n] to e to the z."""
fill = _of_number(lambda _b, _z, number: number)
"""One number to all of z [n]."""
add_number = _of_number(lambda b, z, number: b.fadd(z, number))
"""A number added to each of z [n]."""
multiply_by = _of_number(lambda b, z, number: b.fmul(z, number))
"""z [n] times a number."""
divide_by = _of_number(lambda b, z, number: b.fdiv(z, number))
"""z [n] over a number."""
move = _of_two(lambda _b, _z, x: x)
"""x [n] to z [n]."""
add_to = _of_two(lambda b, z, x: b.fadd(z, x))
"""x [n] added to z [n]."""
subtract_from = _of_two(lambda b, z, x: b.fsub(z, x))
"""x [n] taken from z [n]."""
multiply_all = _of_two(lambda b, z, x: b.fmul(z, x))
"""z [n] times x [n]."""
divide_all = _of_two(lambda b, z, x: b.fdiv(z, x))
"""z [n] over x [n]."""
raise_to = _of_two(larger)
"""The larger of z [n] and x [n] to z; NaN where either is."""


@intrinsic
def rounded(_context: Any, _x: Any, _rounds: Any) -> Any:
    """A number, rounded to fp16 if that is asked for."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        half = b.fpext(b.fptrunc(args[0], HALF), SINGLE)
        return b.select(b.icmp_unsigned("!=", args[1], whole(0)), half, args[0])

    return _FLOAT(_FLOAT, types.int64), code


@intrinsic
def settle(_context: Any, _z: Any, _n: Any, _rounds: Any) -> Any:
    """z [n], rounded to fp16 if that is asked for."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        z = pointer_at(b, args[0], SINGLE)
        with b.if_then(b.icmp_unsigned("!=", args[2], whole(0))):
            over(b, args[1], lambda v, k: v.store(rounded_to_half(b, v.load(z, k)), z, k))
        return context.get_dummy_value()

    return types.void(_AT, _COUNT, types.int64), code


# Copies


def _copy(b: Any, x: Any, step: Any, z: Any, n: Any, of: ir.Type) -> None:
    """Every `step`-th of the numbers at x, fp16 or fp32, to z [n]."""
    x, z, one = pointer_at(b, x, of), pointer_at(b, z, SINGLE), Vectors(b, SINGLE, 1)
    with b.if_else(b.icmp_signed("==", step, whole(1))) as (packed, apart):
        with packed:
            over(b, n, lambda v, k: v.store(v.load(x, k, of), z, k))
        with apart, cgutils.for_range(b, n) as loop:
            one.store(one.load(x, b.mul(loop.index, step), of), z, loop.index)


@intrinsic
def copy(_context: Any, _x: Any, _is_half: Any, _step: Any, _z: Any, _n: Any) -> Any:
    """Every `step`-th of the numbers at x, fp16 or fp32, to z [n]."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        x, is_half, step, z, n = args
        with b.if_else(b.icmp_unsigned("!=", is_half, whole(0))) as (halves, floats):
            with halves:
                _copy(b, x, step, z, n, HALF)
            with floats:
                _copy(b, x, step, z, n, SINGLE)
        return context.get_dummy_value()

    return types.void(_AT, types.int64, types.int64, _AT, _COUNT), code


@intrinsic
def spread(_context: Any, _x: Any, _z: Any, _step: Any, _n: Any) -> Any:
    """x [n] to every `step`-th place from z on."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        (x, z), step, n = (pointer_at(b, at, SINGLE) for at in args[:2]), args[2], args[3]
        one = Vectors(b, SINGLE, 1)
        with b.if_else(b.icmp_signed("==", step, whole(1))) as (packed, apart):
            with packed:
                over(b, n, lambda v, k: v.store(v.load(x, k), z, k))
            with apart, cgutils.for_range(b, n) as loop:
                one.store(one.load(x, loop.index), z, b.mul(loop.index, step))
        return context.get_dummy_value()

    return types.void(_AT, _AT, types.int64, _COUNT), code


@intrinsic
def narrow(_context: Any, _x: Any, _z: Any, _n: Any) -> Any:
    """x [n] to z [n], fp16."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        x, z = pointer_at(b, args[0], SINGLE), pointer_at(b, args[1], HALF)

        def write(v: Vectors, k: Any) -> None:
            found = b.fptrunc(v.load(x, k), ir.VectorType(HALF, v.lanes))
            b.store(found, v.pointer(z, k, HALF), align=2)

        over(b, args[2], write)
        return context.get_dummy_value()

    return types.void(_AT, _AT, _COUNT), code


# Where things are


@intrinsic
def view_of(_context: Any, _views: Any, _index: Any) -> Any:
    """The numbers of a view, of the table at an address."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        return _view(b, *args)

    return types.CPointer(types.int64)(_AT, types.int64), code


@intrinsic
def place_of(_context: Any, _views: Any, _bases: Any, _index: Any) -> Any:
    """The address of a view's first number."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        view, bases = _view(b, args[0], args[2]), pointer_at(b, args[1], I64)
        base, offset = (b.load(b.gep(view, [whole(at)])) for at in (_BASE, _OFFSET))
        return b.add(b.load(b.gep(bases, [base])), offset)

    return types.int64(_AT, _AT, types.int64), code


def _view(b: Any, views: Any, index: Any) -> Any:
    size = whole(8 * layout.VIEW_COLUMNS)
    return pointer_at(b, b.add(views, b.mul(index, size)), I64)
