"""The code of a wide product's inner loops: a tile of results in registers, and rows turned.

How many rows and columns a tile has is as many as the registers hold.  It does not show: each
result is summed over a block of k in order, and blocks are added in order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from orion_ane.engine.jit import intrinsic
from orion_ane.engine.lanes import HALF, I32, I64, SINGLE
from orion_ane.engine.plan.code import I16
from orion_ane.engine.plan.tile_sizes import LANES, PANEL, ROWS, VECTORS

_VECTOR = ir.VectorType(SINGLE, LANES)
_AHEAD = 8  # steps of k that lie ahead of those multiplied when they are fetched


def _const(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def _pointer(b: Any, base: Any, index: Any, of: ir.Type) -> Any:
    return b.bitcast(b.gep(base, [index]), of.as_pointer())


def _fetch(b: Any, at: Any) -> None:
    """Have memory brought near; the place need not exist."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    read, nearest, data = (ir.Constant(I32, n) for n in (0, 3, 1))
    b.call(function, [b.bitcast(at, byte), read, nearest, data])


def _splat(b: Any, number: Any) -> Any:
    first = b.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(I32, 0))
    order = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
    return b.shuffle_vector(first, first, order)


def _products(b: Any, strip: Any, panel: Any, depth: Any) -> list[Any]:
    """The sums over k of a strip times a panel: a loop that keeps them in registers."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fma = cgutils.get_or_insert_function(b.module, kind, f"llvm.fma.v{LANES}f32")
    before, loop, after = b.block, *(b.append_basic_block(name) for name in ("products", "summed"))
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(I64)
    i.add_incoming(_const(0), before)
    sums = [b.phi(_VECTOR) for _ in range(ROWS * VECTORS)]
    for total in sums:
        total.add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
    at, row = b.mul(i, _const(PANEL)), b.mul(i, _const(LANES))
    columns = []
    for v in range(VECTORS):
        place = b.add(at, _const(v * LANES))
        columns.append(b.load(_pointer(b, panel, place, _VECTOR), align=4))
        _fetch(b, b.gep(panel, [b.add(place, _const(_AHEAD * PANEL))]))
    _fetch(b, b.gep(strip, [b.add(row, _const(_AHEAD * LANES))]))
    new = []
    for r in range(ROWS):
        factor = _splat(b, b.load(b.gep(strip, [b.add(row, _const(r))])))
        totals = sums[r * VECTORS : (r + 1) * VECTORS]
        new += [b.call(fma, [factor, *pair]) for pair in zip(columns, totals, strict=True)]
    following = b.add(i, _const(1))
    i.add_incoming(following, loop)
    for total, found in zip(sums, new, strict=True):
        total.add_incoming(found, loop)
    b.cbranch(b.icmp_unsigned("<", following, depth), loop, after)
    b.position_at_end(after)
    return new


@intrinsic
def multiply_tile(
    _context: Any, _strip: Any, _panel: Any, _out: Any, _depth: Any, _pitch: Any, _adds: Any
) -> Any:
    """A strip times a panel over `depth` steps of k, written to a tile or, if it `adds`, added.

    Addresses, the distance between the tile's rows in numbers, and a truth.
    """

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        strip, panel, out = (b.inttoptr(a, SINGLE.as_pointer()) for a in args[:3])
        depth, pitch, adds = args[3:]
        places = []
        for r in range(ROWS):
            start = b.mul(_const(r), pitch)
            places += [
                _pointer(b, out, b.add(start, _const(v * LANES)), _VECTOR) for v in range(VECTORS)
            ]
        for place in places:
            _fetch(b, place)
        sums = _products(b, strip, panel, depth)
        with b.if_else(b.icmp_unsigned("!=", adds, _const(0))) as (yes, no):
            with yes:
                for total, place in zip(sums, places, strict=True):
                    b.store(b.fadd(b.load(place, align=4), total), place, align=4)
            with no:
                for total, place in zip(sums, places, strict=True):
                    b.store(total, place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), code


def _turned(b: Any, rows: list[Any]) -> list[Any]:
    """A square of numbers with rows and columns exchanged: halves, quarters, … change places."""
    order_type = ir.VectorType(I32, LANES)
    size = LANES // 2
    while size:
        new = list(rows)
        for r in range(LANES):
            if r & size:
                continue
            first = [LANES + j - size if j & size else j for j in range(LANES)]
            second = [LANES + j if j & size else j + size for j in range(LANES)]
            for to, order in ((r, first), (r + size, second)):
                new[to] = b.shuffle_vector(rows[r], rows[r + size], ir.Constant(order_type, order))
        rows, size = new, size // 2
    return rows


def _turn(of: ir.Type) -> Any:
    @intrinsic
    def turn(_context: Any, _x: Any, _pitch: Any, _count: Any, _to: Any, _to_pitch: Any) -> Any:
        """LANES numbers of each of LANES rows at x, fp16 or fp32, as columns at `to`, fp32.

        Rows from `count` on are the last one's again, so that nothing behind them is read.
        """

        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            x, pitch, count, to, to_pitch = args
            # fp16 is pointed at by its bits
            source = b.inttoptr(x, (I16 if of == HALF else of).as_pointer())
            target = b.inttoptr(to, SINGLE.as_pointer())
            last, rows = b.sub(count, _const(1)), []
            for r in range(LANES):
                index = b.select(b.icmp_unsigned("<", _const(r), count), _const(r), last)
                at = _pointer(b, source, b.mul(index, pitch), ir.VectorType(of, LANES))
                found = b.load(at, align=2 if of == HALF else 4)
                rows.append(b.fpext(found, _VECTOR) if of == HALF else found)
            for r, row in enumerate(_turned(b, rows)):
                place = _pointer(b, target, b.mul(_const(r), to_pitch), _VECTOR)
                b.store(row, place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), code

    return turn


turn_halves, turn_floats = _turn(HALF), _turn(SINGLE)


def _move(of: ir.Type) -> Any:
    @intrinsic
    def move(_context: Any, _x: Any, _pitch: Any, _count: Any, _to: Any, _to_pitch: Any) -> Any:
        """The first LANES numbers of each of `count` rows at x, fp16 or fp32, to rows of fp32."""

        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            x, pitch, count, to, to_pitch = args
            source = b.inttoptr(x, (I16 if of == HALF else of).as_pointer())
            target = b.inttoptr(to, SINGLE.as_pointer())
            with cgutils.for_range(b, count) as loop:
                at = _pointer(b, source, b.mul(loop.index, pitch), ir.VectorType(of, LANES))
                found = b.load(at, align=2 if of == HALF else 4)
                found = b.fpext(found, _VECTOR) if of == HALF else found
                place = _pointer(b, target, b.mul(loop.index, to_pitch), _VECTOR)
                b.store(found, place, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), code

    return move


move_halves, move_floats = _move(HALF), _move(SINGLE)
