"""Machine code that numba made in an earlier process, put in memory without numba and LLVM.

Those two take more memory than a small model and a second to load, and all that is left to do for
code on the disk is to copy it and to write addresses into it.  What is read is the object that
numba keeps: ELF for x86-64, whose references are whole addresses.  Anything else is refused, and
numba loads it.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian
_RELOCATABLE, _X86_64 = 1, 62
_ALLOCATED, _WRITABLE = 2, 1
_SYMBOLS, _ADDENDS, _NO_BITS = 2, 4, 8
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_ADDRESS, _DISTANCE = 1, 24  # of 64 bits: R_X86_64_64 and R_X86_64_PC64
_FRAMES = ".eh_frame"  # for exceptions of C++, which nobody throws
_READ, _WRITE, _EXECUTE = 1, 2, 4

_OF_EXCEPTIONS = frozenset({
    "NRT_Free", "NRT_MemInfo_call_dtor", "numba_do_raise", "numba_gil_ensure", "numba_gil_release",
    "numba_runtime_build_excinfo_struct", "numba_unpickle",
})  # fmt: skip
"""numba's own functions, for an exception or an array of Python's: kernels called by their address
have neither, so whoever got there ends the process."""

_held: list[mmap.mmap] = []
"""Code lives as long as the process: who has an address does not say when it is done."""


class UnlinkableError(Exception):
    """An object that only numba can load."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class _Object:
    """A relocatable ELF file."""

    data: bytes

    def __post_init__(self) -> None:
        if self.data[:7] != MAGIC or struct.unpack_from("<HH", self.data, 16) != (
            _RELOCATABLE,
            _X86_64,
        ):
            raise UnlinkableError("no ELF object of x86-64")

    def sections(self) -> list[_Section]:
        """Its sections, in order."""
        (start,) = struct.unpack_from("<Q", self.data, 40)
        _, count, _ = struct.unpack_from("<3H", self.data, 58)
        return [_Section(*row) for row in self._rows("<2I4Q2I2Q", start, count)]

    def symbols(self, table: _Section) -> list[_Symbol]:
        """The rows of a table of symbols."""
        return [_Symbol(*row) for row in self._rows("<I2BH2Q", table.offset, table.size // 24)]

    def relocations(self, table: _Section) -> Iterator[tuple[int, int, int, int]]:
        """Place, kind, symbol and addend of each address to write."""
        for at in range(table.offset, table.offset + table.size, 24):
            place, info, addend = struct.unpack_from("<QQq", self.data, at)
            yield place, info & 0xFFFFFFFF, info >> 32, addend

    def text(self, strings: _Section, at: int) -> str:
        """A name of a table of strings."""
        start = strings.offset + at
        return self.data[start : self.data.index(b"\0", start)].decode()

    def _rows(self, form: str, start: int, count: int) -> Iterator[tuple[int, ...]]:
        size = struct.calcsize(form)
        for i in range(count):
            yield struct.unpack_from(form, self.data, start + i * size)


def linked(data: bytes, symbol: str) -> int:
    """The address of a function of an object file, all of which is now in memory.

    Raises:
        UnlinkableError: something of it is of a kind that is not read here, or the system allows
            no code in memory.
    """
    try:
        return _linked(_Object(data), symbol)
    except (struct.error, ValueError, IndexError, OSError, AttributeError) as error:
        raise UnlinkableError(str(error)) from error


def function(address: int, signature: str) -> Callable[..., Any]:
    """What is at an address, to be called from Python, without its lock.

    Args:
        address: where the code is.
        signature: its types, all of them `int64` but for a result of `void`, as numba spells them.
    """
    result, _, arguments = signature.removesuffix(")").partition("(")
    wanted = [ctypes.c_int64] * len(arguments.split(","))
    return ctypes.CFUNCTYPE(None if result == "void" else ctypes.c_int64, *wanted)(address)


def _linked(file: _Object, symbol: str) -> int:
    sections = file.sections()
    (table,) = (section for section in sections if section.kind == _SYMBOLS)
    (names,) = struct.unpack_from("<H", file.data, 62)
    symbols, strings = file.symbols(table), sections[table.link]
    loaded = {
        i: section
        for i, section in enumerate(sections)
        if section.flags & _ALLOCATED and file.text(sections[names], section.name) != _FRAMES
    }
    if any(section.flags & _WRITABLE for section in loaded.values()):
        raise UnlinkableError("it has data that is written to")
    places, end = _laid_out(loaded)
    fixed = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
    commons, end = _common(symbols, fixed)
    size = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i, section in loaded.items():
        if section.kind != _NO_BITS:
            bits = file.data[section.offset : section.offset + section.size]
            memory[places[i] : places[i] + section.size] = bits

    def address(i: int) -> int:
        of = symbols[i]
        if of.section == _COMMON:
            return base + commons[i]
        if of.section == _UNDEFINED:
            return _outside(file.text(strings, of.name))
        if of.section not in places:
            raise UnlinkableError(f"a symbol of section {of.section}")
        return base + places[of.section] + of.value

    for section in sections:
        if section.kind == _ADDENDS and section.info in loaded:
            for at, kind, of, addend in file.relocations(section):
                place = places[section.info] + at
                value = address(of) + addend - (base + place if kind == _DISTANCE else 0)
                if kind not in (_ADDRESS, _DISTANCE):
                    raise UnlinkableError(f"a relocation of kind {kind}")
                struct.pack_into("<Q", memory, place, value & (1 << 64) - 1)
    (found,) = (
        i
        for i, of in enumerate(symbols)
        if of.section != _UNDEFINED and file.text(strings, of.name) == symbol
    )
    _allow(base, fixed)
    _held.append(memory)
    return address(found)


def _laid_out(sections: dict[int, _Section]) -> tuple[dict[int, int], int]:
    """Where each section is to lie, one after the other, and where the last one ends."""
    places, end = {}, 0
    for i, section in sections.items():
        alignment = max(1, section.alignment)
        places[i] = -(-end // alignment) * alignment
        end = places[i] + section.size
    return places, end


def _common(symbols: list[_Symbol], end: int) -> tuple[dict[int, int], int]:
    """Where each variable without a section is to lie: their value is their alignment."""
    places = {}
    for i, of in enumerate(symbols):
        if of.section == _COMMON:
            alignment = max(1, of.value)
            places[i] = -(-end // alignment) * alignment
            end = places[i] + of.size
    return places, end


def _outside(name: str) -> int:
    """The address of what the process has: Python's own functions and the C library's."""
    wanted = "abort" if name in _OF_EXCEPTIONS else name
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(None), wanted))


def _allow(base: int, size: int) -> None:
    """Have memory run, and no more be written to."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(base, size, _READ | _EXECUTE):
        raise OSError(ctypes.get_errno(), "code in memory is not allowed")
