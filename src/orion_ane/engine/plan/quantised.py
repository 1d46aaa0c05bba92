"""Products with weights of int8 codes, read as they are stored: a byte a weight, never unpacked.

Thin products turn activations into int16 codes, each block of 32 with a scale of its own, so that
a block's products are summed exactly, in integers; what that loses is 2^-16 of a block's largest
activation.  Wide ones unpack a stretch of rows to fp32 and then are as any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from orion_ane.engine import lanes
from orion_ane.engine.jit import compiled, intrinsic, native
from orion_ane.engine.lanes import HALF, I16, I32, I64, SINGLE, Vectors, ask_ahead
from orion_ane.engine.plan import code, codes, kernels, layout, steps, vectors
from orion_ane.engine.plan.code import floats_at, halves_at, longs_at, value_of
from orion_ane.engine.plan.codes import BLOCK
from orion_ane.engine.plan.kernels import place_of, rounded, view_of
from orion_ane.engine.plan.layout import COMMAND, At, Of
from orion_ane.engine.plan.vectors import dot_floats

LARGEST = 32767  # of an activation's code
TINY = 1e-30  # activations that are all below count as 0: their codes' factor would overflow

I8 = ir.IntType(8)
_LANES, _WAYS = codes.LANES, 4
_VIEW, _A, _B, _C, _ROUNDS = At.VIEW.value, At.A.value, At.B.value, At.C.value, At.ROUNDS.value
_SIZE, _TOTAL = At.SIZE.value, At.TOTAL.value
_IS_HALF = Of.IS_HALF.value

SOURCES = (code, codes, kernels, lanes, layout, steps, vectors)


# Thin products


def _load_codes(b: Any, base: Any, index: Any) -> Any:
    """A block of codes, widened to int32."""
    wide = ir.VectorType(I32, BLOCK)
    element = base.type.pointee
    at = b.bitcast(b.gep(base, [index], inbounds=True), ir.VectorType(element, BLOCK).as_pointer())
    return b.sext(b.load(at, align=element.width // 8), wide)


def _add_block(v: Vectors, total: Any, places: tuple[Any, Any, Any], index: Any) -> None:
    """Add a block's products times its scale to a total."""
    b, (w, s, x) = v.b, places
    k = b.mul(index, ir.Constant(I64, BLOCK))
    product = b.mul(_load_codes(b, w, k), _load_codes(b, x, k))
    wide = ir.VectorType(I32, _LANES)
    parts = [
        b.shuffle_vector(
            product,
            ir.Constant(product.type, ir.Undefined),
            ir.Constant(wide, list(range(first, BLOCK, 2))),
        )
        for first in (0, 1)
    ]
    scale = v.splat(v.number(s, index))
    b.store(v.call("fma", v.type, b.sitofp(b.add(*parts), v.type), scale, b.load(total)), total)


@intrinsic
def dot_codes(_context: Any, _w: Any, _s: Any, _x: Any, _n: Any) -> Any:
    """The sum of n blocks of products of codes at w, int8, and x, int16, each times its s."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        kinds = (I8, SINGLE, I16)
        places = tuple(
            b.inttoptr(a, kind.as_pointer()) for a, kind in zip(args, kinds, strict=False)
        )
        v, n, ways = Vectors(b, SINGLE, _LANES), args[3], ir.Constant(I64, _WAYS)
        totals = [cgutils.alloca_once_value(b, v.all(0.0)) for _ in range(_WAYS)]
        rounds = b.udiv(n, ways)
        with cgutils.for_range(b, rounds) as loop:
            first = b.mul(loop.index, ways)
            ask_ahead(b, places[0], b.mul(first, ir.Constant(I64, BLOCK)), _WAYS * BLOCK, 1)
            for i, total in enumerate(totals):
                _add_block(v, total, places, b.add(first, ir.Constant(I64, i)))
        start = b.mul(rounds, ways)
        with cgutils.for_range(b, b.sub(n, start)) as loop:
            _add_block(v, totals[0], places, b.add(start, loop.index))
        pairs = [b.fadd(b.load(p), b.load(q)) for p, q in zip(*[iter(totals)] * 2, strict=True)]
        zero = ir.Constant(SINGLE, 0.0)
        return v.call("vector.reduce.fadd", SINGLE, zero, b.fadd(*pairs))

    return types.float32(types.int64, types.int64, types.int64, types.int64), code


@intrinsic
def _scale_halves(_context: Any, _h: Any, _x: Any, _z: Any, _n: Any) -> Any:
    """z = h x of n numbers, h fp16; up to 7 more are read and written."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        h = b.inttoptr(args[0], I16.as_pointer())
        x, z = (b.inttoptr(a, SINGLE.as_pointer()) for a in args[1:3])
        v = Vectors(b, SINGLE, 8)
        with cgutils.for_range(b, b.udiv(args[3], ir.Constant(I64, 8))) as loop:
            k = b.mul(loop.index, ir.Constant(I64, 8))
            v.store(b.fmul(v.load(h, k, HALF), v.load(x, k)), z, k)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), code


@intrinsic
def _code_block(_context: Any, _x: Any, _codes: Any) -> Any:
    """Write the codes of 32 activations; their scale, which is not finite if one of them is not."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        x, codes = b.inttoptr(args[0], SINGLE.as_pointer()), b.inttoptr(args[1], I16.as_pointer())
        v, zero = Vectors(b, SINGLE, BLOCK), ir.Constant(I64, 0)
        values = v.load(x, zero)
        # As integers magnitudes are in order, with infinity and NaN behind all others.
        words = b.bitcast(v.size(values), v.bits)
        function = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(I32, [v.bits]), f"llvm.vector.reduce.umax.v{BLOCK}i32"
        )
        top = b.bitcast(b.call(function, [words]), SINGLE)
        sizes = [ir.Constant(SINGLE, bound) for bound in (TINY, float(np.finfo(np.float32).max))]
        counts = b.and_(b.fcmp_ordered(">", top, sizes[0]), b.fcmp_ordered("<=", top, sizes[1]))
        largest, nothing = ir.Constant(SINGLE, float(LARGEST)), ir.Constant(SINGLE, 0.0)
        factor = b.select(counts, b.fdiv(largest, top), nothing)
        is_low = b.fcmp_ordered("<=", top, sizes[0])
        scale = b.select(is_low, nothing, b.fdiv(top, largest))
        # Infinity times a factor of 0 would be NaN, which is no integer.
        safe = b.select(_spread(b, counts), values, v.all(0.0))
        near = v.call("rint", v.type, b.fmul(safe, v.splat(factor)))
        short = b.fptosi(near, ir.VectorType(I16, BLOCK))
        b.store(short, v.pointer(codes, zero, I16), align=2)
        return scale

    return types.float32(types.int64, types.int64), code


def _spread(b: Any, flag: Any) -> Any:
    kind = ir.VectorType(ir.IntType(1), BLOCK)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), flag, ir.Constant(I32, 0))
    order = ir.Constant(ir.VectorType(I32, BLOCK), [0] * BLOCK)
    return b.shuffle_vector(first, first, order)


@intrinsic
def _signed(_context: Any, _address: Any) -> Any:
    """The int8 code at an address, as fp32."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        return b.sitofp(b.load(b.inttoptr(args[0], I8.as_pointer())), SINGLE)

    return types.float32(types.int64), code


@compiled(is_part=True)
def _scale_at(scale: int, is_half: int, index: int) -> Any:
    if is_half:
        return value_of(halves_at(scale)[index])
    return floats_at(scale)[index]


@compiled(is_part=True)
def _unpack_row(
    w: int, scale: tuple[int, int], first: int, sizes: tuple[int, int], to: int
) -> None:
    """A row of codes as fp32; `first` is the row's first scale."""
    inner, block = sizes
    row = floats_at(to)
    for at in range(0, inner, block):
        factor = _scale_at(scale[0], scale[1], first + at // block)
        for k in range(at, at + block):
            row[k] = factor * _signed(w + k)


@compiled(is_part=True)
def _prepare(x: int, inner: int, columns: int, codes: int, scales: int, room: int) -> None:
    """The codes and scales of all columns."""
    for s in range(columns):
        to = floats_at(scales + 4 * s * room)
        for i in range(inner // BLOCK):
            at = s * inner + i * BLOCK
            to[i] = _code_block(x + 4 * at, codes + 2 * at)


@compiled(is_part=True)
def _factors(
    scale: tuple[int, int], first: int, blocks: int, per: int, x_scales: int, to: int
) -> None:
    """The scales of a row's blocks times the activations'; `per` blocks have one of the row's."""
    if scale[1] and per == 1:
        _scale_halves(scale[0] + 2 * first, x_scales, to, blocks)
        start = blocks // 8 * 8
    else:
        start = 0
    z, y = floats_at(to), floats_at(x_scales)
    for i in range(start, blocks):
        z[i] = _scale_at(scale[0], scale[1], first + i // per) * y[i]


@native(COMMAND, sources=SOURCES)
def rows_of_codes(
    command: int, views: int, _steps: int, bases: int, registers: int, begin: int, end: int
) -> None:
    """y [O, B] = w [O, A] x [B, A]ᵀ, each row of w read once; C codes have one scale."""
    c = longs_at(command)
    v = c[_VIEW]
    w = place_of(views, bases, v)
    scale = (place_of(views, bases, v + 1), view_of(views, v + 1)[_IS_HALF])
    x = place_of(views, bases, v + 2)
    y = place_of(views, bases, v + 3)
    inner, columns, block = c[_A], c[_B], c[_C]
    scales_a_row = inner // block
    first, last = begin * c[_SIZE], min(end * c[_SIZE], c[_TOTAL])
    if first >= last:
        return
    is_whole = inner % BLOCK == 0 and block % BLOCK == 0
    blocks = inner // BLOCK
    room = (blocks + 15) // 16 * 16
    scales = registers
    factors = scales + 4 * room * columns
    codes = factors + 4 * room
    if is_whole:
        _prepare(x, inner, columns, codes, scales, room)
    for o in range(first, last):
        z = floats_at(y + 4 * o * columns)
        at = w + o * inner
        if not is_whole:
            _unpack_row(at, scale, o * scales_a_row, (inner, block), registers)
        for s in range(columns):
            if not is_whole:
                found = dot_floats(registers, x + 4 * s * inner, inner)
            elif scales_a_row == 1:
                found = dot_codes(at, scales + 4 * s * room, codes + 2 * s * inner, blocks)
                found *= _scale_at(scale[0], scale[1], o)
            else:
                mine = scales + 4 * s * room
                _factors(scale, o * scales_a_row, blocks, block // BLOCK, mine, factors)
                found = dot_codes(at, factors, codes + 2 * s * inner, blocks)
            z[s] = rounded(found, c[_ROUNDS])


@native(COMMAND, sources=SOURCES)
def unpack_rows(
    command: int, views: int, _steps: int, bases: int, _registers: int, begin: int, end: int
) -> None:
    """y [O, A] of codes w and their scales, from row B on; C codes have one."""
    c = longs_at(command)
    v = c[_VIEW]
    w = place_of(views, bases, v)
    scale = (place_of(views, bases, v + 1), view_of(views, v + 1)[_IS_HALF])
    y = place_of(views, bases, v + 2)
    inner, block, top = c[_A], c[_C], c[_B]
    for o in range(begin * c[_SIZE], min(end * c[_SIZE], c[_TOTAL])):
        line = top + o
        at = w + line * inner
        _unpack_row(at, scale, line * (inner // block), (inner, block), y + 4 * o * inner)
