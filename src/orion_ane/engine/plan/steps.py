"""What a step of a tape does to a block: one loop an op, written out, and a choice among them.

That takes a tenth of the time to compile that functions in Python would take; LLVM makes vectors
of each.  exp, tanh and the logistic curve are computed in fp64 and rounded to fp32 once, by steps
that depend neither on a library nor on what the processor can do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from orion_ane.engine.jit import intrinsic
from orion_ane.engine.plan.code import DOUBLE, I64, SINGLE
from orion_ane.engine.plan.layout import Do

_LOG2E, _LN2 = 1.4426950408889634, 0.6931471805599453
_WHOLE = 1.5 * 2.0**52  # added and taken away it rounds to a whole number, which its bits hold
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond, e to the x is 0 or infinite in fp32
_SMALL = 1e-4  # tanh x is x to fp32's precision below
_SERIES = (40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0)  # factorials, after 9!


def _one(value: float, kind: ir.Type = SINGLE) -> ir.Constant:
    return ir.Constant(kind, value)


def _call(b: Any, name: str, *args: Any) -> Any:
    of = args[0].type
    kind = ir.FunctionType(of, [of] * len(args))
    suffix = "f64" if of == DOUBLE else "f32"
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.{name}.{suffix}"), args)


def _choose(b: Any, how: str, x: Any, y: Any, then: Any, other: Any) -> Any:
    """`then` where x and y compare so, which no NaN does."""
    return b.select(b.fcmp_ordered(how, x, y), then, other)


def _within(b: Any, x: Any, low: Any, high: Any) -> Any:
    """x held between two numbers; NaN stays."""
    x = _choose(b, ">", low, x, low, x)
    return _choose(b, "<", high, x, high, x)


def _wide_exp(b: Any, x: Any) -> Any:
    """e to the x in fp64, to some 1e-11, for x that fp32 can hold the result of; NaN of NaN."""
    x = _within(b, x, _one(_LOWEST, DOUBLE), _one(_HIGHEST, DOUBLE))
    whole = _call(b, "fma", x, _one(_LOG2E, DOUBLE), _one(_WHOLE, DOUBLE))
    n = b.fsub(whole, _one(_WHOLE, DOUBLE))
    r = _call(b, "fma", n, _one(-_LN2, DOUBLE), x)
    p: Any = _one(1.0 / 362880.0, DOUBLE)
    for factorial in _SERIES:
        p = _call(b, "fma", p, r, _one(1.0 / factorial, DOUBLE))
    exponent = b.add(b.bitcast(whole, I64), ir.Constant(I64, 1023))
    return b.fmul(p, b.bitcast(b.shl(exponent, ir.Constant(I64, 52)), DOUBLE))


def _exp(b: Any, x: Any) -> Any:
    return b.fptrunc(_wide_exp(b, b.fpext(x, DOUBLE)), SINGLE)


def _tanh(b: Any, x: Any) -> Any:
    size, one = b.fpext(_call(b, "fabs", x), DOUBLE), _one(1.0, DOUBLE)
    bounded = _choose(b, "<", _one(20.0, DOUBLE), size, _one(20.0, DOUBLE), size)
    e = _wide_exp(b, b.fmul(_one(2.0, DOUBLE), bounded))
    curved = b.fdiv(b.fsub(e, one), b.fadd(e, one))
    curved = _choose(b, "<", size, _one(_SMALL, DOUBLE), size, curved)
    signed = b.fptrunc(_choose(b, ">", x, _one(0.0), curved, b.fneg(curved)), SINGLE)
    return _choose(b, "==", x, _one(0.0), x, signed)


def _sigmoid(b: Any, x: Any) -> Any:
    """1 / (1 + e to the -x), stable on both sides of 0."""
    e = _exp(b, b.fneg(_call(b, "fabs", x)))
    top = _choose(b, ">=", x, _one(0.0), _one(1.0), e)
    return b.fdiv(top, b.fadd(e, _one(1.0)))


def _larger(b: Any, x: Any, y: Any) -> Any:
    """NaN where either is."""
    is_x = b.or_(b.fcmp_ordered(">", x, y), b.fcmp_unordered("uno", x, x))
    return b.select(is_x, x, y)


Writer = Callable[..., Any]

_WRITERS: Mapping[Do, Writer] = MappingProxyType({
    Do.COPY: lambda _b, x, *_: x,
    Do.ADD: lambda b, x, y, *_: b.fadd(x, y),
    Do.SUB: lambda b, x, y, *_: b.fsub(x, y),
    Do.MUL: lambda b, x, y, *_: b.fmul(x, y),
    Do.DIV: lambda b, x, y, *_: b.fdiv(x, y),
    Do.MAXIMUM: lambda b, x, y, *_: _larger(b, x, y),
    Do.AT_LEAST: lambda b, x, y, *_: _choose(b, ">=", x, y, _one(1.0), _one(0.0)),
    Do.CHOOSE: lambda b, c, x, y, *_: b.select(b.fcmp_unordered("!=", c, _one(0.0)), x, y),
    Do.CLIP: lambda b, x, _y, _w, p, q: _within(b, x, p, q),
    Do.RELU: lambda b, x, *_: _choose(b, ">", x, _one(0.0), x, _one(0.0)),
    Do.NEG: lambda b, x, *_: b.fneg(x),
    Do.EXP: lambda b, x, *_: _exp(b, x),
    Do.TANH: lambda b, x, *_: _tanh(b, x),
    Do.SIGMOID: lambda b, x, *_: _sigmoid(b, x),
    Do.SQRT: lambda b, x, *_: _call(b, "sqrt", x),
    Do.RSQRT: lambda b, x, _y, _w, p, _q: b.fdiv(_one(1.0), _call(b, "sqrt", b.fadd(x, p))),
})  # fmt: skip
"""The code of an op on one element of three operands, and its two parameters."""


@intrinsic
def apply(
    _context: Any, _do: Any, _x: Any, _y: Any, _w: Any, _z: Any, _p: Any, _q: Any, _n: Any
) -> Any:
    """Do an op on n numbers at x, y and w, with parameters p and q, and write to z, none of them.

    Operands that an op does not have are any addresses of n numbers.
    """

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        do, *places, p, q, n = args
        *sources, target = (b.inttoptr(place, SINGLE.as_pointer()) for place in places)
        numbers = [b.fptrunc(number, SINGLE) for number in (p, q)]
        end = b.append_basic_block("end")
        choice = b.switch(do, end)
        for op, write in _WRITERS.items():
            block = b.append_basic_block(op.name.lower())
            choice.add_case(ir.Constant(I64, int(op)), block)
            with b.goto_block(block):
                _loop(b, write, sources, target, numbers, n)
                b.branch(end)
        b.position_at_end(end)
        return context.get_dummy_value()

    whole, number = types.int64, types.float64
    return types.void(whole, whole, whole, whole, whole, number, number, whole), code


def _loop(
    b: Any, write: Writer, sources: list[Any], target: Any, numbers: list[Any], n: Any
) -> None:
    with cgutils.for_range(b, n) as loop:
        found = [b.load(b.gep(x, [loop.index], inbounds=True)) for x in sources]
        b.store(write(b, *found, *numbers), b.gep(target, [loop.index], inbounds=True))


@intrinsic
def exp_of(_context: Any, _x: Any) -> Any:
    """e to the x, as a step of a tape has it."""
    return types.float32(types.float32), lambda _c, b, _s, args: _exp(b, args[0])
