"""Who does what when: commands dealt out or not, barriers between them, buffers in one arena.

Small commands are one thread's, which needs no barrier between two of them.  Nor do two
commands that are dealt out alike, where each thread reads what it wrote itself.  A phase is what
runs between two barriers; memory is used again in a later phase alone.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import prod

import numpy as np

from orion_ane.engine.plan.commands import Buffer, Command, View
from orion_ane.engine.plan.layout import BLOCK, COLUMNS, Kind

WORTH_DEALING = 1 << 14  # operations that take longer than it takes to meet
WORTH_READING = 1 << 13  # of rows of a port, which are in no cache yet
STRETCH = 256  # columns of a row's product, where they are so many times whole
FEW_UNITS = 4  # matrices of a batch: below, rows are dealt out, or strips or panels
ALIGNMENT = 64

_BY_ROWS = (Kind.ROWS, Kind.CODES)
_IN_STRETCHES = (Kind.TAPE, Kind.COLUMNS, *_BY_ROWS)
"""What writes its results one after the other, a stretch of them a unit."""


def deal(commands: Sequence[Command]) -> int:
    """Set the phase, units and size of each command; how many phases there are."""
    phase = 0
    last: dict[Buffer, list[Command]] = {}
    for command in commands:
        sources = [w for view in command.reads for w in last.get(view.buffer, ())]
        _share(command, [s for s in sources if s.phase == phase])
        if any(not _follows(command, s) for s in sources if s.phase == phase):
            phase += 1
            _share(command, [])
        command.phase = phase
        for view in command.writes:
            last.setdefault(view.buffer, []).append(command)
    return phase + 1


def _share(command: Command, sources: list[Command]) -> None:
    """Deal a command out as its sources are, if it can be; else by its own size."""
    for source in sources:
        if source.units and _can_share(command, source.units):
            command.units, command.size = source.units, _size(command, source)
            if all(_follows(command, s) for s in sources):
                return
    _deal_out(command)
    if command.units == 1:  # one thread's, so that none that follow are taken for dealt out
        command.units, command.size = 0, command.total


def _deal_out(command: Command) -> None:
    """Deal a command out by its own size, if it is worth it."""
    command.units, command.size = 0, command.total
    if command.cost < (WORTH_READING if _reads_port(command) else WORTH_DEALING):
        return
    match command.kind:
        case Kind.TAPE:
            command.units, command.size = -(-command.total // BLOCK), BLOCK
        case Kind.MATMUL | Kind.PANELS | Kind.WIDE:
            batch = prod(command.writes[0].shape[:-2])
            units = batch if batch >= FEW_UNITS else command.total
            command.units, command.size = units, command.total // units
        case Kind.COLUMNS:
            command.size = STRETCH if command.total % STRETCH == 0 else COLUMNS
            command.units = -(-command.total // command.size)
        case _:
            command.units, command.size = command.total, 1


def _reads_port(command: Command) -> bool:
    return command.kind is Kind.ROWS and command.reads[0].buffer.place == "input"


def _can_share(command: Command, units: int) -> bool:
    """Whether a command falls into that many parts, each a stretch of its results."""
    match command.kind:
        case Kind.TAPE:
            return command.total % units == 0 or units == -(-command.total // BLOCK)
        case Kind.MATMUL | Kind.PANELS | Kind.WIDE:
            return prod(command.writes[0].shape[:-2]) % units == 0
        case Kind.REDUCE | Kind.SOFTMAX | Kind.NORM:
            return _outer(command) % units == 0
    return False


def _outer(command: Command) -> int:
    """Of the jobs of a reduction, those that are whole stretches of its results."""
    return command.total // -(-command.sizes[1] // COLUMNS)


def _size(command: Command, source: Command) -> int:
    """Results of a unit: blocks as its source's, or else alike, though as many units as blocks."""
    units, is_even = source.units, command.total % source.units == 0
    by_blocks = source.kind is Kind.TAPE and not _is_even(source)
    if command.kind is Kind.TAPE and (by_blocks or not is_even):
        return BLOCK
    return command.total // units


def _is_even(command: Command) -> bool:
    """Whether all units are of one size: those of a tape in blocks may end with a shorter one."""
    return command.kind is not Kind.TAPE or command.size * command.units == command.total


def _follows(command: Command, source: Command) -> bool:
    """Whether a command may run right after one of the same phase that it reads from."""
    if not source.units and not command.units:
        return True
    if source.units != command.units:
        return False
    if source.kind is command.kind is Kind.TAPE and source.size == command.size == BLOCK:
        made = {view.buffer for view in source.writes}
        return source.total == command.total and all(
            view.is_whole for view in command.reads if view.buffer in made
        )
    if _is_element_by_element(source, command):
        return True
    if not (_can_share(source, source.units) and _can_share(command, command.units)):
        return False
    if not (_is_even(source) and _is_even(command)):  # then a unit is no part of each
        return False
    return all(
        _is_own(written, read, command.units)
        for written in source.writes
        for read in command.reads
        if read.buffer is written.buffer
    )


def _is_element_by_element(source: Command, command: Command) -> bool:
    """Whether both are dealt out in the same stretches, and what one wrote is read as it lies."""
    if command.kind is not Kind.TAPE or source.kind not in _IN_STRETCHES:
        return False
    if source.kind in _BY_ROWS and command.cost < WORTH_DEALING:  # a call a part takes longer
        return False
    made = {view.buffer for view in source.writes}
    return (source.size, source.total) == (command.size, command.total) and all(
        view.is_whole for view in (*source.writes, *command.reads) if view.buffer in made
    )


def _is_own(written: View, read: View, units: int) -> bool:
    """Whether each unit of a reader reads what that unit of the writer wrote."""
    if not written.is_whole or written.elements % units:
        return False
    size = written.elements // units
    axis, count = 0, 1
    while count < units and axis < len(read.shape):
        count *= read.shape[axis]
        axis += 1
    if count != units:
        return False
    starts = np.zeros(1, np.int64)
    for n, stride in zip(read.shape[:axis], read.strides[:axis], strict=True):
        starts = (starts[:, None] + np.arange(n) * stride).ravel()
    starts += read.offset
    rest = zip(read.shape[axis:], read.strides[axis:], strict=True)
    reach = sum((n - 1) * stride for n, stride in rest)
    want = np.arange(units) * size
    return bool(((starts >= want) & (starts + reach < want + size)).all())


def arena(commands: Sequence[Command]) -> int:
    """Give each buffer of the arena its place; the bytes it takes in all."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for command in commands:
        for view in (*command.reads, *command.writes):
            if view.buffer.place == "arena":
                first.setdefault(view.buffer, command.phase)
                last[view.buffer] = max(command.phase, last.get(view.buffer, 0))
    free: list[tuple[int, int]] = []  # offset and size, in order
    ending: dict[int, list[tuple[int, int]]] = {}
    end, phase = 0, 0
    for buffer in sorted(first, key=first.__getitem__):
        while phase < first[buffer]:
            for piece in ending.pop(phase, ()):
                insort(free, piece)
            phase += 1
        free = _merged(free)
        size = -(-buffer.elements * 4 // ALIGNMENT) * ALIGNMENT
        fits = [piece for piece in free if piece[1] >= size]
        if fits:
            piece = min(fits, key=lambda piece: piece[1])
            free.remove(piece)
            buffer.offset = piece[0]
            if piece[1] > size:
                insort(free, (piece[0] + size, piece[1] - size))
        else:
            buffer.offset, end = end, end + size
        ending.setdefault(last[buffer], []).append((buffer.offset, size))
    return end


def _merged(free: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset, size in free:
        if found and sum(found[-1]) == offset:
            found[-1] = (found[-1][0], found[-1][1] + size)
        else:
            found.append((offset, size))
    return found
