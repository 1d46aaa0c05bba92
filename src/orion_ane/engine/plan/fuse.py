"""Commands in the order they run: thin products together, elementwise steps joined to tapes."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from orion_ane.engine.plan.commands import Buffer, Command
from orion_ane.engine.plan.layout import Kind
from orion_ane.engine.plan.phases import WORTH_DEALING

MAX_STEPS = 48  # of a tape: enough for any block of a model, and registers stay few


def scheduled(commands: list[Command]) -> list[Command]:
    """The commands, each after those it reads from; of what could run next, thin products first.

    So the products that read one value stand side by side, and no thread waits between them.  Then
    what is small: it is ready when what is dealt out needs it, so that this is not interrupted.
    """
    writers = _writers(commands)
    number = {command: i for i, command in enumerate(commands)}
    waits: dict[Command, int] = {}
    readers: dict[Command, list[Command]] = {command: [] for command in commands}
    for command in commands:
        sources = {w for view in command.reads for w in writers.get(view.buffer, ())}
        waits[command] = len(sources)
        for source in sources:
            readers[source].append(command)

    def key(command: Command) -> tuple[int, int]:
        rank = 0 if command.kind is Kind.ROWS else 1 if command.cost < WORTH_DEALING else 2
        return rank, number[command]

    ready = [(*key(command), command) for command in commands if not waits[command]]
    heapify(ready)
    order: list[Command] = []
    while ready:
        *_, command = heappop(ready)
        order.append(command)
        for reader in readers[command]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, (*key(reader), reader))
    return order


def fused(commands: list[Command]) -> list[Command]:
    """The commands with each elementwise step in the tape that made what it reads, if it may be.

    It may where the tape has the same shape, every operand is there by then, and what the tape
    itself makes is read element by element.
    """
    places: dict[Buffer, int] = {}  # where in `found` a buffer is complete
    found: list[Command] = []
    for command in commands:
        at = max((places.get(view.buffer, -1) for view in command.reads), default=-1)
        if found and not (at >= 0 and _may_join(found[at], command)):
            at = len(found) - 1  # everything is there by then
        if at >= 0 and _may_join(found[at], command):
            tape = found[at]
            tape.steps += command.steps
            tape.reads += command.reads
            tape.writes += command.writes
            tape.cost += command.cost
        else:
            found.append(command)
            at = len(found) - 1
        for view in command.writes:
            places[view.buffer] = max(at, places.get(view.buffer, -1))
    return found


def _may_join(tape: Command, command: Command) -> bool:
    if not tape.kind == command.kind == Kind.TAPE or tape.shape != command.shape:
        return False
    if len(tape.steps) >= MAX_STEPS:
        return False
    made = {view.buffer for view in tape.writes if view.is_whole}
    partly = {view.buffer for view in tape.writes} - made
    return all(
        view.buffer not in partly and (view.buffer not in made or view.is_whole)
        for view in command.reads
    )


def _writers(commands: list[Command]) -> dict[Buffer, list[Command]]:
    found: dict[Buffer, list[Command]] = {}
    for command in commands:
        for view in command.writes:
            found.setdefault(view.buffer, []).append(command)
    return found
