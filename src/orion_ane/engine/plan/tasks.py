"""What threads take one after the other: parts of commands, large ones first, then smaller ones.

Three quarters of a command are dealt out equally, then as much of the rest, and so on, so that
threads end together though one may be slower, or come late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np

from orion_ane.engine.plan.commands import Command
from orion_ane.engine.plan.layout import TASK_COLUMNS, Kind
from orion_ane.types import Array

_LEAST = 1 << 16  # operations of a part, about: a task begins to read at another place, which takes
# as long as some thousand; of halves down to 1 << 14 a token took a Zen 5 2 to 4 % longer
_ROUNDS = 4  # the last leaves parts of some hundredth of a thread's share


def grouped(commands: Sequence[Command]) -> list[Command]:
    """The commands of each phase with those that are dealt out alike side by side.

    What one of them reads of another, its unit reads of the same unit; the rest of a phase has
    nothing to do with each other.
    """
    found: list[Command] = []
    for _, phase in groupby(commands, key=lambda command: command.phase):
        by_units: dict[int, list[Command]] = {}
        for command in phase:
            by_units.setdefault(command.units, []).append(command)
        for alike in by_units.values():
            found += alike
    return found


def tasks(commands: Sequence[Command], count: int) -> Array:
    """The rows of `Task` for commands in groups, and up to `count` threads."""
    rows: list[tuple[int, int, int, int, int]] = []
    first, phase, needs = 0, 0, 0
    for (at, units), alike in groupby(commands, key=lambda c: (c.phase, c.units)):
        if at != phase:
            phase, needs = at, len(rows)
        group = list(alike)
        kinds, cost = {command.kind for command in group}, sum(command.cost for command in group)
        if Kind.ATTEND in kinds:  # heads of a position lie side by side: they are read in lines
            cost = 0
        elif Kind.CODES in kinds:  # each part makes codes of all activations first
            cost //= 4
        for begin, end in parts(max(units, 1), cost, count):
            rows.append((first, len(group), begin, end, needs))
        first += len(group)
    return np.array(rows, np.int64).reshape(-1, TASK_COLUMNS)


def parts(units: int, cost: int, count: int) -> Iterator[tuple[int, int]]:
    """Units from 0 on in stretches."""
    halvings = (cost // (_LEAST * count)).bit_length()
    rounds = 1 if count == 1 else min(_ROUNDS, max(1, (halvings + 1) // 2))
    start = 0
    for left in reversed(range(rounds)):
        end = units if left == 0 else start + (units - start) * 3 // 4
        size = end - start
        cuts = [start + i * size // count for i in range(count + 1)]
        yield from ((a, b) for a, b in pairwise(cuts) if a < b)
        start = end
