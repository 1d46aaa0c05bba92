"""The code that LLVM is given for the ANE's multiply-accumulate: vectors, tiles, thresholds.

Why it is exact: see `kernels`.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils

from orion_ane.engine.jit import check_processor, intrinsic
from orion_ane.engine.lanes import DOUBLE, HALF, I16, I64, SINGLE, Vectors, ask_ahead

DEPTH = 128  # products that a tile sums, and that one bound covers
LANES = 64  # totals of a thin product: 4 vectors of 16
LARGEST = 65504.0  # the largest finite fp16 number

_FEATURES = binding.get_host_cpu_features()
check_processor(platform.machine(), _FEATURES)
_IS_WIDE = _FEATURES.get("avx512f", False)
ROWS, PANEL = (8, 32) if _IS_WIDE else (4, 16)  # of a tile: as many as the registers hold
ROWS_64, PANEL_64 = 4, 16


def _at(builder: Any, *terms: Any) -> Any:
    """A sum of indices."""
    first, *rest = (ir.Constant(I64, term) if isinstance(term, int) else term for term in terms)
    for term in rest:
        first = builder.add(first, term)
    return first


def _unpack(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """Arguments; of an array, the place of its first element."""
    return [
        context.make_array(kind)(context, builder, arg).data
        if isinstance(kind, types.Array)
        else arg
        for kind, arg in zip(signature.args, args, strict=True)
    ]


def _dot(element: ir.Type, lanes: int, count: int) -> Any:
    @intrinsic
    def dot(_context: Any, w: Any, w_at: Any, n: Any, x: Any, x_at: Any, t_at: Any) -> Any:
        """Σ w[k] x[k] over n products; x from x_at on, nudged, and its thresholds from t_at on.

        Both are padded with zeros to LANES.
        """

        def code(context: Any, b: Any, signature: Any, args: Any) -> Any:
            w, w_at, n, x, x_at, t_at = _unpack(context, b, signature, args)
            v = Vectors(b, element, lanes)
            totals = v.totals(count)

            def step(total: Any, k: Any, values: Any) -> None:
                factor, least = (v.load(x, _at(b, at, k)) for at in (x_at, t_at))
                kept = b.fcmp_ordered(">=", v.size(values), least)
                v.add_product(total, values, factor, kept=kept)

            block = ir.Constant(I64, lanes * count)
            blocks = b.udiv(n, block)
            with cgutils.for_range(b, blocks) as loop:
                start = b.mul(loop.index, block)
                ask_ahead(b, w, _at(b, w_at, start), lanes * count, 2)
                for i, total in enumerate(totals):
                    k = _at(b, start, i * lanes)
                    step(total, k, v.load(w, _at(b, w_at, k), HALF))
            for i, total in enumerate(totals):
                k = _at(b, b.mul(blocks, block), i * lanes)
                with b.if_then(b.icmp_unsigned("<", k, n)):
                    step(total, k, v.load_halves(w, _at(b, w_at, k), b.sub(n, k)))
            sums = [v.sum_of(total) for total in totals]
            while len(sums) > 1:
                sums = [b.fadd(p, q) for p, q in zip(sums[::2], sums[1::2], strict=True)]
            wide = sums[0] if element == DOUBLE else b.fpext(sums[0], ir.VectorType(DOUBLE, lanes))
            return v.call("vector.reduce.fadd", DOUBLE, ir.Constant(DOUBLE, 0.0), wide)

        return types.float64(w, w_at, n, x, x_at, t_at), code

    return dot


def _tile(element: ir.Type, lanes: int, rows: int, columns: int) -> Any:
    @intrinsic
    def tile(
        _context: Any, w: Any, w_at: Any, t_at: Any, x: Any, x_at: Any, n: Any, c: Any, c_at: Any
    ) -> Any:
        """Add Σ w[r,k] x[k,s] over n products to c[r,s]; w nudged, with thresholds from t_at on.

        Rows of w are DEPTH apart, those of x and c PANEL.
        """

        def code(context: Any, b: Any, signature: Any, args: Any) -> Any:
            w, w_at, t_at, x, x_at, n, c, c_at = _unpack(context, b, signature, args)
            v, d = Vectors(b, element, lanes), Vectors(b, DOUBLE, lanes)
            starts = range(0, columns, lanes)
            places = [(r, s) for r in range(rows) for s in starts]
            totals = dict(zip(places, v.totals(len(places)), strict=True))
            with cgutils.for_range(b, n) as loop:
                line = _at(b, x_at, b.mul(loop.index, ir.Constant(I64, PANEL)))
                factors = {s: v.load(x, _at(b, line, s), SINGLE) for s in starts}
                sizes = {s: v.size(factor) for s, factor in factors.items()}
                for r in range(rows):
                    k = _at(b, loop.index, r * DEPTH)
                    value, least = (v.splat(v.number(w, _at(b, at, k))) for at in (w_at, t_at))
                    for s in starts:
                        kept = b.fcmp_ordered(">=", sizes[s], least)
                        v.add_product(totals[r, s], value, factors[s], kept=kept)
            for (r, s), total in totals.items():
                at, part = _at(b, c_at, r * PANEL + s), v.sum_of(total)
                part = part if element == DOUBLE else b.fpext(part, d.type)
                d.store(b.fadd(d.load(c, at), part), c, at)
            return context.get_dummy_value()

        return types.void(w, w_at, t_at, x, x_at, n, c, c_at), code

    return tile


def _pack(element: ir.Type, lanes: int) -> Any:
    mantissa, bias = (23, 127) if element == SINGLE else (52, 1023)

    @intrinsic
    def pack(_context: Any, h: Any, h_at: Any, n: Any, to: Any, at: Any, t_at: Any) -> Any:
        """Write n fp16 numbers, nudged, from `at` on, and their thresholds from t_at on.

        What is not finite is written as 0.
        """

        def code(context: Any, b: Any, signature: Any, args: Any) -> Any:
            h, h_at, n, to, at, t_at = _unpack(context, b, signature, args)
            v = Vectors(b, element, lanes)
            blocks = b.udiv(_at(b, n, lanes - 1), ir.Constant(I64, lanes))
            with cgutils.for_range(b, blocks) as loop:
                k = b.mul(loop.index, ir.Constant(I64, lanes))
                value = v.load_halves(h, _at(b, h_at, k), b.sub(n, k))
                size = v.size(value)
                nudged = b.bitcast(b.add(b.bitcast(value, v.bits), v.all_bits(1)), v.type)
                counts = b.and_(
                    b.fcmp_ordered(">", size, v.all(0.0)),
                    b.fcmp_ordered("<=", size, v.all(LARGEST)),
                )
                v.store(b.select(counts, nudged, v.all(0.0)), to, _at(b, at, k))
                exponent = b.lshr(b.bitcast(size, v.bits), v.all_bits(mantissa))
                is_low = b.icmp_unsigned("<", exponent, v.all_bits(bias - 14))
                exponent = b.select(is_low, v.all_bits(bias - 14), exponent)
                opposite = b.sub(v.all_bits(2 * bias - 16), exponent)
                least = b.bitcast(b.shl(opposite, v.all_bits(mantissa)), v.type)
                is_any = b.icmp_unsigned(">=", exponent, v.all_bits(bias - 2))
                v.store(b.select(is_any, v.all(0.0), least), to, _at(b, t_at, k))
            return context.get_dummy_value()

        return types.void(h, h_at, n, to, at, t_at), code

    return pack


def _measure(lanes: int, count: int) -> Any:
    @intrinsic
    def measure(_context: Any, w: Any, at: Any, n: Any, reach: Any, part: Any) -> Any:
        """Write Σ|w| of each DEPTH of n numbers to reach[part] and after.

        Returns the largest Σ|w| of a total of the thin product.
        """

        def code(context: Any, b: Any, signature: Any, args: Any) -> Any:
            w, at, n, reach, part = _unpack(context, b, signature, args)
            v = Vectors(b, SINGLE, lanes)
            sums = [cgutils.alloca_once_value(b, v.all(0.0)) for _ in range(count)]
            within = cgutils.alloca_once_value(b, v.all(0.0))
            with cgutils.for_range(
                b, b.udiv(_at(b, n, DEPTH - 1), ir.Constant(I64, DEPTH))
            ) as loop:
                b.store(v.all(0.0), within)
                for i in range(DEPTH // lanes):
                    k = _at(b, b.mul(loop.index, ir.Constant(I64, DEPTH)), i * lanes)
                    with b.if_then(b.icmp_unsigned("<", k, n)):
                        size = v.size(v.load_halves(w, _at(b, at, k), b.sub(n, k)))
                        for place in (within, sums[i % count]):
                            b.store(b.fadd(b.load(place), size), place)
                zero = ir.Constant(SINGLE, 0.0)
                total = v.call("vector.reduce.fadd", SINGLE, zero, b.load(within))
                b.store(total, b.gep(reach, [_at(b, part, loop.index)]))
            tops = [v.call("vector.reduce.fmax", SINGLE, b.load(place)) for place in sums]
            top = tops[0]
            for other in tops[1:]:
                top = b.select(b.fcmp_ordered(">", top, other), top, other)
            return top

        return types.float32(w, at, n, reach, part), code

    return measure


dot_32, dot_64 = _dot(SINGLE, 16, 4), _dot(DOUBLE, 8, 4)
tile_32, tile_64 = _tile(SINGLE, 16, ROWS, PANEL), _tile(DOUBLE, 8, ROWS_64, PANEL_64)
pack_32, pack_64 = _pack(SINGLE, 16), _pack(DOUBLE, 8)
measure_row = _measure(16, LANES // 16)


def _scalar(argument: types.Type, result: types.Type, write: Any) -> Any:
    @intrinsic
    def convert(_context: Any, _value: Any) -> Any:
        return result(argument), lambda _c, b, _s, args: write(b, args[0])

    return convert


value_of = _scalar(types.uint16, types.float32, lambda b, x: b.fpext(b.bitcast(x, HALF), SINGLE))
half_of = _scalar(types.float32, types.uint16, lambda b, x: b.bitcast(b.fptrunc(x, HALF), I16))
bits_of = _scalar(types.float64, types.int64, lambda b, x: b.bitcast(x, I64))
from_bits = _scalar(types.int64, types.float64, lambda b, x: b.bitcast(x, DOUBLE))
