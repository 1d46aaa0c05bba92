"""Products in vectors written out: where LLVM is left to find them, it does so in small functions.

Sums are kept in 64 lanes whatever the processor has, so that their order is the same everywhere.
"""

from __future__ import annotations

from math import inf
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from orion_ane.engine.jit import intrinsic
from orion_ane.engine.lanes import HALF, I64, SINGLE, Vectors, ask_ahead
from orion_ane.engine.plan.code import I32, pointer_at

LANES, WAYS = 16, 4
_BLOCK = LANES * WAYS


def number_at(b: Any, base: Any, index: Any, of: ir.Type) -> Any:
    """One number, as fp32."""
    found = b.load(b.gep(base, [index], inbounds=True))
    return b.fpext(b.bitcast(found, HALF), SINGLE) if of == HALF else found


def multiply_add(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once."""
    function = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(SINGLE, [SINGLE] * 3), "llvm.fma.f32"
    )
    return b.call(function, [x, y, z])


def in_halves(b: Any, found: Any, fold: Any) -> Any:
    """A vector folded to one number: its halves, then theirs."""
    while found.type.count > 1:
        half = found.type.count // 2
        parts = ((*range(half),), (*range(half, 2 * half),))
        masks = (ir.Constant(ir.VectorType(I32, half), list(part)) for part in parts)
        found = fold(*(b.shuffle_vector(found, found, mask) for mask in masks))
    return b.extract_element(found, ir.Constant(I32, 0))


def _dot(of: ir.Type) -> Any:
    @intrinsic
    def dot(_context: Any, _w: Any, _x: Any, _n: Any) -> Any:
        """The sum of n products of numbers at w, fp16 or fp32, and at x, fp32."""

        def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
            w, x, n = pointer_at(b, args[0], of), pointer_at(b, args[1], SINGLE), args[2]
            v, step = Vectors(b, SINGLE, LANES), ir.Constant(I64, LANES)
            totals = [cgutils.alloca_once_value(b, v.all(0.0)) for _ in range(WAYS)]
            blocks = b.udiv(n, ir.Constant(I64, _BLOCK))
            with cgutils.for_range(b, blocks) as loop:
                k = b.mul(loop.index, ir.Constant(I64, _BLOCK))
                ask_ahead(b, w, k, _BLOCK, 2 if of == HALF else 4)
                for total in totals:
                    product = (v.load(w, k, of), v.load(x, k), b.load(total))
                    b.store(v.call("fma", v.type, *product), total)
                    k = b.add(k, step)
            pairs = [b.fadd(b.load(p), b.load(q)) for p, q in zip(*[iter(totals)] * 2, strict=True)]
            sum_at = cgutils.alloca_once_value(b, in_halves(b, b.fadd(*pairs), b.fadd))
            start = b.mul(blocks, ir.Constant(I64, _BLOCK))
            with cgutils.for_range(b, b.sub(n, start)) as loop:
                k = b.add(start, loop.index)
                product = (number_at(b, w, k, of), number_at(b, x, k, SINGLE), b.load(sum_at))
                b.store(multiply_add(b, *product), sum_at)
            return b.load(sum_at)

        return types.float32(types.int64, types.int64, types.int64), code

    return dot


def _add_scaled(of: ir.Type) -> Any:
    @intrinsic
    def add_scaled(_context: Any, _a: Any, _y: Any, _z: Any, _n: Any) -> Any:
        """Add a times n numbers at y, fp16 or fp32, to those at z."""

        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            a, n = args[0], args[3]
            y, z = pointer_at(b, args[1], of), pointer_at(b, args[2], SINGLE)
            v = Vectors(b, SINGLE, LANES)
            blocks, factor = b.udiv(n, ir.Constant(I64, LANES)), v.splat(a)
            with cgutils.for_range(b, blocks) as loop:
                k = b.mul(loop.index, ir.Constant(I64, LANES))
                sums = v.call("fma", v.type, factor, v.load(y, k, of), v.load(z, k))
                v.store(sums, z, k)
            start = b.mul(blocks, ir.Constant(I64, LANES))
            with cgutils.for_range(b, b.sub(n, start)) as loop:
                k = b.add(start, loop.index)
                to = b.gep(z, [k], inbounds=True)
                b.store(multiply_add(b, a, number_at(b, y, k, of), b.load(to)), to)
            return context.get_dummy_value()

        return types.void(types.float32, types.int64, types.int64, types.int64), code

    return add_scaled


dot_halves, dot_floats = _dot(HALF), _dot(SINGLE)
add_halves, add_floats = _add_scaled(HALF), _add_scaled(SINGLE)


@intrinsic
def sum_of(_context: Any, _x: Any, _n: Any) -> Any:
    """The sum of n numbers at x."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        x, n, v = pointer_at(b, args[0], SINGLE), args[1], Vectors(b, SINGLE, LANES)
        whole, sums = _folded(b, v, x, n, v.all(0.0), b.fadd)
        return _with_rest(b, x, n, whole, in_halves(b, sums, b.fadd), b.fadd)

    return types.float32(types.int64, types.int64), code


@intrinsic
def largest_of(_context: Any, _x: Any, _n: Any) -> Any:
    """The largest of n numbers at x; NaN where there is one."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        def larger(x: Any, y: Any) -> Any:
            is_x = b.or_(b.fcmp_ordered(">", x, y), b.fcmp_unordered("uno", x, x))
            return b.select(is_x, x, y)

        x, n, v = pointer_at(b, args[0], SINGLE), args[1], Vectors(b, SINGLE, LANES)
        whole, tops = _folded(b, v, x, n, v.all(-inf), larger)
        return _with_rest(b, x, n, whole, in_halves(b, tops, larger), larger)

    return types.float32(types.int64, types.int64), code


def _folded(b: Any, v: Vectors, x: Any, n: Any, start: Any, fold: Any) -> tuple[Any, Any]:
    """How many numbers at x are whole blocks, and those folded to one vector."""
    totals = [cgutils.alloca_once_value(b, start) for _ in range(WAYS)]
    blocks = b.udiv(n, ir.Constant(I64, _BLOCK))
    with cgutils.for_range(b, blocks) as loop:
        k = b.mul(loop.index, ir.Constant(I64, _BLOCK))
        for i, total in enumerate(totals):
            found = v.load(x, b.add(k, ir.Constant(I64, i * LANES)))
            b.store(fold(b.load(total), found), total)
    first, second, third, fourth = map(b.load, totals)
    whole = b.mul(blocks, ir.Constant(I64, _BLOCK))
    return whole, fold(fold(first, second), fold(third, fourth))


def _with_rest(b: Any, x: Any, n: Any, start: Any, value: Any, fold: Any) -> Any:
    """A value folded with the numbers at x from `start` on, one by one."""
    found = cgutils.alloca_once_value(b, value)
    with cgutils.for_range(b, b.sub(n, start)) as loop:
        number = number_at(b, x, b.add(start, loop.index), SINGLE)
        b.store(fold(b.load(found), number), found)
    return b.load(found)
