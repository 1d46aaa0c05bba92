"""Commands as the tables that the kernel reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np

from orion_ane.engine.plan.codes import scratch_bytes
from orion_ane.engine.plan.commands import Buffer, Command, Shape, Step, View
from orion_ane.engine.plan.layout import (
    COLUMNS,
    COMMAND_COLUMNS,
    NORM_ROWS,
    RANK,
    REGISTER_BYTES,
    STEP_COLUMNS,
    VIEW_COLUMNS,
    At,
    Do,
    In,
    Kind,
)
from orion_ane.engine.plan.natives import NATIVES
from orion_ane.engine.plan.tile_sizes import SCRATCH_BYTES
from orion_ane.types import Array

LARGE_UNIT = 1 << 14  # elements: longer to do than commands to go through


class Table:
    """The rows of a plan.

    Args:
        commands: in order, their phases, units and buffers' places set.
        bases: the number of each buffer's base; 0 is the arena.
    """

    def __init__(self, commands: Sequence[Command], bases: dict[tuple[str, str], int]) -> None:
        self._bases = bases
        self._views: list[list[int]] = []
        self._steps: list[list[int]] = []
        self.scratch = 2 * REGISTER_BYTES
        """Bytes that a thread needs of its own."""
        self._read_by = _readers(commands)
        rows = [self._row(command) for command in commands]
        at = 0
        while at < len(rows):
            rows[at][At.SPAN] = span = _span(commands, at)
            at += span
        self.commands = _array(rows, COMMAND_COLUMNS)
        self.views = _array(self._views, VIEW_COLUMNS)
        self.steps = _array(self._steps, STEP_COLUMNS)

    def base(self, buffer: Buffer) -> int:
        """The number of a buffer's base."""
        place = buffer.place
        return 0 if place == "arena" else self._bases[place, buffer.name]

    def _row(self, command: Command) -> list[int]:
        row = [0] * COMMAND_COLUMNS
        row[At.KIND] = command.kind
        row[At.CALL] = NATIVES[command.kind].address
        row[At.UNITS], row[At.SIZE], row[At.TOTAL] = command.units, command.size, command.total
        row[At.VIEW], row[At.STEP] = len(self._views), len(self._steps)
        row[At.ROUNDS] = command.rounds
        row[At.A : At.A + len(command.sizes)] = command.sizes
        if command.kind is Kind.TAPE:
            self._tape(command)
            row[At.STEPS] = len(self._steps) - row[At.STEP]
            return row
        for view in (*command.reads, *command.writes):
            self._view(view, *_of_rows(view))
        if command.kind is Kind.ATTEND:
            row[At.D], row[At.STEPS] = (self._filled(kept.buffer) for kept in command.reads[1:3])
            self.scratch = max(self.scratch, _scores_bytes(command.total, *command.sizes[:2]))
        if command.kind is Kind.NORM:
            self.scratch = max(self.scratch, 4 * (command.sizes[0] + NORM_ROWS * COLUMNS))
        if command.kind is Kind.WIDE:
            self.scratch = max(self.scratch, SCRATCH_BYTES)
        if command.kind is Kind.CODES:
            self.scratch = max(self.scratch, scratch_bytes(*command.sizes[:2]))
        if command.kind in (Kind.ROWS, Kind.MATMUL):
            self.scratch = max(self.scratch, 4 * command.reads[1].shape[-1])
        return row

    def _filled(self, buffer: Buffer) -> int:
        """Where among the bases it stands how far a port is filled; 0 of what is no port."""
        return 1 + len(self._bases) + self.base(buffer) if buffer.place == "input" else 0

    def _view(self, view: View, shape: Shape, strides: Shape) -> int:
        size = 2 if view.buffer.is_half else 4
        at = view.buffer.offset + size * view.offset
        lead = RANK - len(shape)
        row = [self.base(view.buffer), at, int(view.buffer.is_half)]
        self._views.append([*row, *(1,) * lead, *shape, *(0,) * lead, *strides])
        return len(self._views) - 1

    def _tape(self, command: Command) -> None:
        tape = _Tape(self, command)
        for i, step in enumerate(command.steps):
            tape.add(i, step)
        self._steps.extend(tape.rows)
        self.scratch = max(self.scratch, tape.registers * REGISTER_BYTES)

    def is_kept(self, view: View, command: Command) -> bool:
        """Whether what a tape writes must be in memory."""
        buffer = view.buffer
        others = any(reader is not command for reader in self._read_by.get(buffer, ()))
        return buffer.place != "arena" or others or not view.is_whole


class _Tape:
    """The rows of one tape, and who has which register."""

    def __init__(self, table: Table, command: Command) -> None:
        self.rows: list[list[int]] = []
        self.registers = 0
        self._table, self._command = table, command
        self._free: list[int] = []
        self._places: dict[tuple[Buffer, int, Shape, Shape], int] = {}
        self._pinned: set[int] = set()
        self._last: dict[tuple[Buffer, int, Shape, Shape], int] = {}
        for i, step in enumerate(command.steps):
            for view in step.reads:
                self._last[_key(view)] = i

    def add(self, i: int, step: Step) -> None:
        """Append a step, and what loads and stores for it."""
        x = [self._operand(view) for view in step.reads]
        is_kept = self._table.is_kept(step.writes, self._command)
        is_direct = is_kept and step.writes.is_packed and not step.writes.buffer.is_half
        if is_kept and not is_direct and step.do is Do.COPY and not step.rounds:
            self._row(Do.STORE, self._memory(step.writes), x)
        elif is_direct:
            to = -1 - self._memory(step.writes)
            self._row(step.do, to, x, step)
            self._places[_key(step.writes)] = to
        else:
            to = self._new()
            self._row(step.do, to, x, step)
            self._places[_key(step.writes)] = to
            if is_kept:
                self._row(Do.STORE, self._memory(step.writes), [to])
        self._release(i)

    def _operand(self, view: View) -> int:
        key = _key(view)
        if key in self._places:
            return self._places[key]
        if view.is_packed and not view.buffer.is_half:
            at = -1 - self._memory(view)
        else:
            is_one = not any(key[3])
            at = self._pin() if is_one else self._new()
            self._row(Do.FILL if is_one else Do.LOAD, at, [self._memory(view)])
        self._places[key] = at
        return at

    def _memory(self, view: View) -> int:
        shown = view.squeezed()
        return self._table._view(view, shown.shape, shown.strides)  # noqa: SLF001 - its own part

    def _new(self) -> int:
        if self._free:
            return self._free.pop()
        self.registers += 1
        return self.registers - 1

    def _pin(self) -> int:
        """A register that nothing else in the tape has, since it is filled once."""
        self._pinned.add(self.registers)
        self.registers += 1
        return self.registers - 1

    def _release(self, i: int) -> None:
        for key, at in list(self._places.items()):
            if self._last.get(key, -1) <= i and at not in self._pinned:
                if at >= 0:
                    self._free.append(at)
                del self._places[key]

    def _row(self, do: Do, to: int, operands: list[int], step: Step | None = None) -> None:
        row = [0] * STEP_COLUMNS
        row[In.DO], row[In.TO] = do, to
        row[In.X : In.X + len(operands)] = operands
        row[In.X + len(operands) : In.Z + 1] = operands[:1] * (In.Z + 1 - In.X - len(operands))
        if step is not None:
            row[In.ROUNDS] = step.rounds
            for column, number in zip((In.P, In.Q), step.numbers, strict=False):
                row[column] = struct.unpack("<q", struct.pack("<d", number))[0]
        self.rows.append(row)


def _span(commands: Sequence[Command], start: int) -> int:
    """How many commands from one on are better done unit by unit, since a unit stays in cache."""
    head, end = commands[start], start + 1
    most = max((view.elements for view in head.writes), default=0)
    if not head.units or _is_by_strips(head) or most < LARGE_UNIT * head.units:
        return 1
    while end < len(commands) and (commands[end].phase, commands[end].units) == (
        head.phase,
        head.units,
    ):
        if _is_by_strips(commands[end]):
            break
        end += 1
    return end - start


def _scores_bytes(heads: int, groups: int, room: int) -> int:
    """What a thread needs for rows of scores, the masks, and two numbers for each row."""
    line, rows = -(-room // COLUMNS) * COLUMNS, heads * groups
    return 4 * ((rows + 1) * line + 1 + 2 * rows)


def _is_by_strips(command: Command) -> bool:
    """Whether it is a wide product of which several units are better done at a time."""
    return command.kind in (Kind.PANELS, Kind.WIDE) and command.size == 1


def _key(view: View) -> tuple[Buffer, int, Shape, Shape]:
    shown = view.squeezed()
    return view.buffer, view.offset, shown.shape, shown.strides


def _of_rows(view: View) -> tuple[Shape, Shape]:
    """Shape and strides, where an axis of one element has no stride but that of a packed row."""
    strides = tuple(
        1 if size == 1 else stride for size, stride in zip(view.shape, view.strides, strict=True)
    )
    return view.shape, strides


def _readers(commands: Iterable[Command]) -> dict[Buffer, list[Command]]:
    found: dict[Buffer, list[Command]] = {}
    for command in commands:
        for view in command.reads:
            found.setdefault(view.buffer, []).append(command)
    return found


def _array(rows: list[list[int]], columns: int) -> Array:
    return np.array(rows, np.int64).reshape(-1, columns)
