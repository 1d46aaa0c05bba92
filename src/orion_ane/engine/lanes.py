"""The code that LLVM is given for vectors of numbers, and for memory that will be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils

LANES = 16  # fp32 numbers of a vector: a processor that has shorter ones takes several
LINE = 64  # bytes that the processor fetches at once
# How far ahead of a sum memory is asked for, in bytes.  A processor's own guesses end with a page
# and begin anew; two threads of a Cascade Lake read rows at 20 GB/s so and at 17 without, and of a
# Zen 5 a token took 0.93 to 0.98 of the time, of int8 0.86 to 0.94.  A Zen 4 was slower when it
# was asked, and reads as fast as it can by itself.
IS_ASKED = (binding.get_host_cpu_name() or "") not in {f"znver{n}" for n in (1, 2, 3, 4)}
AHEAD = 4096 if IS_ASKED else 0

I16, I32, I64 = (ir.IntType(bits) for bits in (16, 32, 64))
HALF, SINGLE, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_OFFSET = {SINGLE: 1.5 * 2.0**7, DOUBLE: 1.5 * 2.0**36}
_INTEGER = {SINGLE: I32, DOUBLE: I64}
_NAME = {HALF: "f16", SINGLE: "f32", DOUBLE: "f64", I16: "i16"}


class Vectors:
    """The code for vectors of `lanes` numbers of one type."""

    def __init__(self, builder: Any, element: ir.Type, lanes: int) -> None:
        self.b, self.element, self.lanes = builder, element, lanes
        self.type = ir.VectorType(element, lanes)
        self.bits = ir.VectorType(_INTEGER[element], lanes)

    def all(self, value: float) -> ir.Constant:
        """The number in each lane."""
        return ir.Constant(self.type, [value] * self.lanes)

    def all_bits(self, value: int) -> ir.Constant:
        """The integer in each lane."""
        return ir.Constant(self.bits, [value] * self.lanes)

    def pointer(self, base: Any, index: Any, element: ir.Type) -> Any:
        """Where base[index] and its followers lie."""
        at = self.b.gep(base, [index], inbounds=True)
        return self.b.bitcast(at, ir.VectorType(element, self.lanes).as_pointer())

    def load(self, base: Any, index: Any, of: ir.Type | None = None) -> Any:
        """The numbers from base[index] on, widened to this type."""
        of = of or self.element
        found = self.b.load(self.pointer(base, index, of), align=2 if of == HALF else 4)
        return found if of == self.element else self.b.fpext(found, self.type)

    def load_halves(self, base: Any, index: Any, count: Any) -> Any:
        """The first `count` fp16 numbers from base[index] on, widened, then zeros."""
        b = self.b
        order = ir.Constant(ir.VectorType(I32, self.lanes), list(range(self.lanes)))
        bound = self.splat(b.trunc(count, I32))
        mask = b.icmp_unsigned("<", order, bound)
        found = self.call(
            "masked.load",
            ir.VectorType(I16, self.lanes),
            self.pointer(base, index, I16),
            ir.Constant(I32, 2),
            mask,
            ir.Constant(ir.VectorType(I16, self.lanes), [0] * self.lanes),
            suffix=".p0",
        )
        return b.fpext(b.bitcast(found, ir.VectorType(HALF, self.lanes)), self.type)

    def splat(self, value: Any) -> Any:
        """A number in each lane."""
        kind = ir.VectorType(value.type, self.lanes)
        first = self.b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
        order = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        return self.b.shuffle_vector(first, first, order)

    def number(self, base: Any, index: Any) -> Any:
        """The one number base[index]."""
        return self.b.load(self.b.gep(base, [index], inbounds=True))

    def store(self, value: Any, base: Any, index: Any) -> None:
        """Write to base[index] and after."""
        self.b.store(value, self.pointer(base, index, value.type.element), align=4)

    def call(self, name: str, result: ir.Type, *args: Any, suffix: str = "") -> Any:
        """The result of an intrinsic of LLVM, named after a vector that it takes or gives."""
        kind = result if isinstance(result, ir.VectorType) else args[-1].type
        function = cgutils.get_or_insert_function(
            self.b.module,
            ir.FunctionType(result, [arg.type for arg in args]),
            f"llvm.{name}.v{kind.count}{_NAME[kind.element]}{suffix}",
        )
        flags = ("reassoc",) if name.startswith("vector.reduce") else ()
        return self.b.call(function, args, fastmath=flags)

    def size(self, value: Any) -> Any:
        """Magnitudes."""
        return self.call("fabs", self.type, value)

    def totals(self, count: int) -> list[Any]:
        """Places for totals, which begin at the offset."""
        offset = self.all(_OFFSET[self.element])
        return [cgutils.alloca_once_value(self.b, offset) for _ in range(count)]

    def add_product(self, total: Any, w: Any, x: Any, *, kept: Any) -> None:
        """Add w·x to a total, in one rounding, in the lanes that are kept."""
        before = self.b.load(total)
        after = self.call("fma", self.type, w, x, before)
        self.b.store(self.b.select(kept, after, before), total)

    def sum_of(self, total: Any) -> Any:
        """What a total has summed."""
        return self.b.fsub(self.b.load(total), self.all(_OFFSET[self.element]))


def over(b: Any, n: Any, write: Callable[[Vectors, Any], None]) -> None:
    """Do `write` from each whole vector of n fp32 numbers on, then from each one left."""
    lanes = ir.Constant(I64, LANES)
    blocks = b.udiv(n, lanes)
    with cgutils.for_range(b, blocks) as loop:
        write(Vectors(b, SINGLE, LANES), b.mul(loop.index, lanes))
    start = b.mul(blocks, lanes)
    with cgutils.for_range(b, b.sub(n, start)) as loop:
        write(Vectors(b, SINGLE, 1), b.add(start, loop.index))


def ask_ahead(b: Any, base: Any, index: Any, count: int, size: int) -> None:
    """Have what lies AHEAD of `count` numbers of so many bytes fetched."""
    for at in range(AHEAD, AHEAD + size * count if AHEAD else 0, LINE):
        fetch_line(b, b.gep(base, [b.add(index, ir.Constant(I64, at // size))]))


def fetch_line(b: Any, place: Any) -> None:
    """Have a line of memory fetched; what is no memory is not."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    prefetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    to_read, to_be_kept, data = (ir.Constant(I32, value) for value in (0, 3, 1))
    b.call(prefetch, [b.bitcast(place, byte), to_read, to_be_kept, data])
