"""The code that numba cannot write itself: memory by address, atomic counters, fp16 values.

A plan's commands hold addresses; a kernel sees an array where one of them points.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from llvmlite import binding, ir
from numba import types

from orion_ane.engine.jit import check_processor, intrinsic

check_processor(platform.machine(), binding.get_host_cpu_features())

I16, I32, I64 = (ir.IntType(bits) for bits in (16, 32, 64))
HALF, SINGLE, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_PAUSE = {"x86_64": "llvm.x86.sse2.pause", "amd64": "llvm.x86.sse2.pause"}
_YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"


def pointer_at(b: Any, address: Any, of: ir.Type) -> Any:
    """An address as a pointer; fp16 is pointed at by its bits."""
    return b.inttoptr(address, (I16 if of == HALF else of).as_pointer())


def _convert(argument: types.Type, result: types.Type, write: Any) -> Any:
    @intrinsic
    def convert(_context: Any, _value: Any) -> Any:
        return result(argument), lambda _c, b, _s, args: write(b, args[0])

    return convert


def _pointer(element: types.Type, kind: ir.Type) -> Any:
    return _convert(
        types.int64, types.CPointer(element), lambda b, x: b.inttoptr(x, kind.as_pointer())
    )


floats_at = _pointer(types.float32, SINGLE)
doubles_at = _pointer(types.float64, DOUBLE)
bytes_at = _pointer(types.uint8, ir.IntType(8))
halves_at = _pointer(types.uint16, I16)
longs_at = _pointer(types.int64, I64)
half_of = _convert(types.float32, types.uint16, lambda b, x: b.bitcast(b.fptrunc(x, HALF), I16))
bits_of = _convert(types.float64, types.int64, lambda b, x: b.bitcast(x, I64))
from_bits = _convert(types.int64, types.float64, lambda b, x: b.bitcast(x, DOUBLE))


@intrinsic
def value_of(_context: Any, x: Any) -> Any:
    """A number as fp32: itself, or the fp16 whose bits it is."""

    def from_single(_c: Any, _b: Any, _s: Any, args: Any) -> Any:
        return args[0]

    def from_half(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], HALF), SINGLE)

    return types.float32(x), from_half if x == types.uint16 else from_single


@intrinsic
def quotient(_context: Any, x: Any, _y: Any) -> Any:
    """x / y as IEEE has it: numba's own refuses a zero."""
    return x(x, x), lambda _c, b, _s, args: b.fdiv(*args)


@intrinsic
def call_native(
    _context: Any,
    _at: Any,
    _command: Any,
    _views: Any,
    _steps: Any,
    _bases: Any,
    _registers: Any,
    _begin: Any,
    _end: Any,
) -> Any:
    """Call what computes a command, which is at an address."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 7)
        b.call(b.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 8), code


# Counters that threads share, by address


@intrinsic
def fetch_add(_context: Any, _address: Any, _value: Any) -> Any:
    """Add to a counter; what it was before."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        at = b.inttoptr(args[0], I64.as_pointer())
        return b.atomic_rmw("add", at, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@intrinsic
def fetch(_context: Any, _address: Any) -> Any:
    """A counter's value, which another thread may have changed."""

    def code(_c: Any, b: Any, _s: Any, args: Any) -> Any:
        return b.load_atomic(b.inttoptr(args[0], I64.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), code


@intrinsic
def put(_context: Any, _address: Any, _value: Any) -> Any:
    """Set a counter, for others to see."""

    def code(context: Any, b: Any, _s: Any, args: Any) -> Any:
        b.store_atomic(args[1], b.inttoptr(args[0], I64.as_pointer()), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


def _call(name: str | None, result: ir.Type) -> Any:
    @intrinsic
    def call(_context: Any) -> Any:
        def code(context: Any, b: Any, _s: Any, _args: Any) -> Any:
            if name is not None:
                kind = ir.FunctionType(result, [])
                known = b.module.globals.get(name)
                b.call(known if known is not None else ir.Function(b.module, kind, name), [])
            return context.get_dummy_value()

        return types.void(), code

    return call


pause = _call(_PAUSE.get(platform.machine().lower()), ir.VoidType())
yield_processor = _call(_YIELD, I32)
