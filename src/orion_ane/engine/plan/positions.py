"""A head's query times the keys of positions, and their values times its weights, in vectors.

A key or value is of `depth` numbers, fp16 or fp32, and so many bytes lie from one to the next.
The order of every sum depends on the depth alone, and on the positions for values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from orion_ane.engine.jit import intrinsic
from orion_ane.engine.lanes import (
    HALF,
    I64,
    IS_ASKED,
    LINE,
    SINGLE,
    Vectors,
    fetch_line,
)
from orion_ane.engine.plan.code import pointer_at
from orion_ane.engine.plan.vectors import (
    LANES,
    in_halves,
    multiply_add,
    number_at,
)

_AT_ONCE = 4  # positions whose keys are multiplied side by side, and vectors of a value
_WHOLE = types.int64


def _whole(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


@contextmanager
def _steps(b: Any, start: Any, end: Any, step: int) -> Iterator[Any]:
    """A loop over start, start + step and so on, as far as whole steps go."""
    count = b.sdiv(b.sub(end, start), _whole(step))
    with cgutils.for_range(b, count) as loop:
        yield b.add(start, b.mul(loop.index, _whole(step)))


def _whole_part(b: Any, start: Any, end: Any, step: int) -> Any:
    """Where whole steps from start on end."""
    return b.add(start, b.mul(b.sdiv(b.sub(end, start), _whole(step)), _whole(step)))


def _ask_for(b: Any, place: Any, size: int, depth: Any) -> None:
    """Have `depth` numbers at an address fetched, where the processor is glad to be told."""
    if IS_ASKED:
        lines = b.udiv(b.add(b.mul(depth, _whole(size)), _whole(LINE - 1)), _whole(LINE))
        with cgutils.for_range(b, lines) as loop:
            at = b.add(place, b.mul(loop.index, _whole(LINE)))
            fetch_line(b, b.inttoptr(at, ir.IntType(8).as_pointer()))


def _scores(of: ir.Type) -> Any:
    size = 2 if of == HALF else 4

    @intrinsic
    def scores(
        _context: Any, _keys: Any, _q: Any, _z: Any, _n: Any, _stride: Any, _depth: Any, _ahead: Any
    ) -> Any:
        """z [n] = keys [n, depth] times q [depth], fp32; asks for what lies `ahead` bytes on."""

        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            keys, q_at, z_at, n, stride, depth, ahead = args
            q, z = (pointer_at(b, at, SINGLE) for at in (q_at, z_at))
            v = Vectors(b, SINGLE, LANES)

            def some(first: Any, count: int) -> None:
                places = [b.add(keys, b.mul(b.add(first, _whole(i)), stride)) for i in range(count)]
                for place in places:
                    _ask_for(b, b.add(place, ahead), size, depth)
                lines = [pointer_at(b, place, of) for place in places]
                totals = [cgutils.alloca_once_value(b, v.all(0.0)) for _ in lines]
                for total in totals:
                    b.store(v.all(0.0), total)
                with _steps(b, _whole(0), depth, LANES) as k:
                    factor = v.load(q, k)
                    for line, total in zip(lines, totals, strict=True):
                        b.store(
                            v.call("fma", v.type, v.load(line, k, of), factor, b.load(total)), total
                        )
                start = _whole_part(b, _whole(0), depth, LANES)
                for i, (line, total) in enumerate(zip(lines, totals, strict=True)):
                    to = b.gep(z, [b.add(first, _whole(i))], inbounds=True)
                    b.store(in_halves(b, b.load(total), b.fadd), to)
                    with _steps(b, start, depth, 1) as k:
                        x, y = number_at(b, line, k, of), number_at(b, q, k, SINGLE)
                        b.store(multiply_add(b, x, y, b.load(to)), to)

            with _steps(b, _whole(0), n, _AT_ONCE) as first:
                some(first, _AT_ONCE)
            with _steps(b, _whole_part(b, _whole(0), n, _AT_ONCE), n, 1) as first:
                some(first, 1)
            return context.get_dummy_value()

        return types.void(*[_WHOLE] * 7), code

    return scores


def _mix(of: ir.Type) -> Any:
    size = 2 if of == HALF else 4

    @intrinsic
    def mix(
        _context: Any,
        _values: Any,
        _p: Any,
        _y: Any,
        _n: Any,
        _stride: Any,
        _depth: Any,
        _ahead: Any,
    ) -> Any:
        """Add p [n] times values [n, depth] to y [depth]; asks for what lies `ahead` bytes on."""

        def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
            values, p_at, y_at, n, stride, depth, ahead = args
            p, y = (pointer_at(b, at, SINGLE) for at in (p_at, y_at))
            v = Vectors(b, SINGLE, LANES)
            with cgutils.for_range(b, n) as loop:
                place = b.add(values, b.mul(loop.index, stride))
                _ask_for(b, b.add(place, ahead), size, depth)

            def some(first: Any, count: int) -> None:
                channels = [b.add(first, _whole(i * LANES)) for i in range(count)]
                totals = [cgutils.alloca_once(b, v.type) for _ in channels]
                for channel, total in zip(channels, totals, strict=True):
                    b.store(v.load(y, channel), total)
                with cgutils.for_range(b, n) as loop:
                    line = pointer_at(b, b.add(values, b.mul(loop.index, stride)), of)
                    factor = v.splat(number_at(b, p, loop.index, SINGLE))
                    for channel, total in zip(channels, totals, strict=True):
                        found = v.load(line, channel, of)
                        b.store(v.call("fma", v.type, factor, found, b.load(total)), total)
                for channel, total in zip(channels, totals, strict=True):
                    v.store(b.load(total), y, channel)

            blocks = _whole_part(b, _whole(0), depth, _AT_ONCE * LANES)
            with _steps(b, _whole(0), depth, _AT_ONCE * LANES) as first:
                some(first, _AT_ONCE)
            with _steps(b, blocks, depth, LANES) as first:
                some(first, 1)
            with _steps(b, _whole_part(b, blocks, depth, LANES), depth, 1) as k:
                to = b.gep(y, [k], inbounds=True)
                with cgutils.for_range(b, n) as loop:
                    line = pointer_at(b, b.add(values, b.mul(loop.index, stride)), of)
                    x, factor = number_at(b, line, k, of), number_at(b, p, loop.index, SINGLE)
                    b.store(multiply_add(b, factor, x, b.load(to)), to)
            return context.get_dummy_value()

        return types.void(*[_WHOLE] * 7), code

    return mix


score_halves, score_floats = _scores(HALF), _scores(SINGLE)
mix_halves, mix_floats = _mix(HALF), _mix(SINGLE)
