"""What runs a plan: every thread reads the same commands and does its share."""

from __future__ import annotations

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan import code, kernels, layout
from orion_ane.engine.plan.code import call_native, fetch, fetch_add, pause, put, yield_processor
from orion_ane.engine.plan.kernels import table
from orion_ane.engine.plan.layout import COMMAND_COLUMNS

# Plain numbers: numba compiles them in.
WAIT, UNITS, SPAN, CALL = (int(layout.At[name]) for name in ("WAIT", "UNITS", "SPAN", "CALL"))

SOURCES = (code, kernels, layout)

# What the threads of a process share, each number in a cache line of its own
ARRIVED, TURN, OPEN, TEAM, LEFT, AWAKE, ARGUMENTS = range(0, 128 * 7, 128)
SHARED = (ARGUMENTS + 128) // 8
_CLOSED = 1 << 40
_PATIENCE = 20_000  # pauses that the first thread waits for others to start, under a millisecond
_SPINS = 2_000  # pauses before a waiting thread lets others have the processor


@compiled(is_part=True)
def _waited(spins: int) -> int:
    pause()
    if spins > _SPINS:
        yield_processor()
    return spins + 1


@compiled(is_part=True)
def _meet(shared: int, team: int) -> None:
    """Wait until every thread is here."""
    turn = fetch(shared + TURN)
    if fetch_add(shared + ARRIVED, 1) + 1 == team:
        put(shared + ARRIVED, 0)
        put(shared + TURN, turn + 1)
        return
    spins = 0
    while fetch(shared + TURN) == turn:
        spins = _waited(spins)


# All of it


@compiled(is_part=True)
def _share(
    mine: int,
    team: int,
    shared: int,
    rows: tuple[int, int],
    tables: tuple[int, int, int],
    registers: int,
) -> None:
    """What one thread of a team does of some commands."""
    (commands_at, count), (views, steps, bases) = rows, tables
    commands = table(commands_at, COMMAND_COLUMNS)
    i = 0
    while i < count:
        if commands[i, WAIT] and team > 1:
            _meet(shared, team)
        units, span = commands[i, UNITS], commands[i, SPAN]
        begin, end = mine * units // team, (mine + 1) * units // team
        if units == 0:
            begin, end = 0, 1 if mine == 0 else 0
        step = end - begin if span == 1 else 1
        while begin < end:
            for j in range(i, i + span):
                command = commands_at + 8 * COMMAND_COLUMNS * j
                call = commands[j, CALL]
                call_native(call, command, views, steps, bases, registers, begin, begin + step)
            begin += step
        i += span


@compiled(sources=SOURCES)
def enlist(shared: int, wanted: int) -> int:
    """How many threads must `follow`, so that as many as are wanted do; they count as awake."""
    missing = max(0, wanted - fetch(shared + AWAKE))
    fetch_add(shared + AWAKE, missing)
    return missing


@compiled(sources=SOURCES)
def lead(
    shared: int,
    expected: int,
    stays: int,
    commands: int,
    count: int,
    views: int,
    steps: int,
    bases: int,
    scratch: int,
    scratch_size: int,
) -> None:
    """Run commands with the threads that follow, of which there should be one less than expected.

    Who does not come in time has no part; those who have one are waited for.

    Args:
        shared: the address of SHARED numbers, which begin as zeros.
        expected: how many threads there should be.
        stays: pauses for which others then wait for more to do.
        commands: the address of rows of `At`.
        count: how many.
        views: the address of rows of `Of`.
        steps: the address of rows of `In`.
        bases: the address of addresses, which views count from.
        scratch: the address of the threads' own memory.
        scratch_size: bytes of it a thread.
    """
    if expected == 1:
        _share(0, 1, shared, (commands, count), (views, steps, bases), scratch)
        return
    at = shared + ARGUMENTS
    put(at, expected)
    put(at + 8, stays)
    put(at + 16, commands)
    put(at + 24, count)
    put(at + 32, views)
    put(at + 40, steps)
    put(at + 48, bases)
    put(at + 56, scratch)
    put(at + 64, scratch_size)
    put(shared + TEAM, 0)
    put(shared + LEFT, 0)
    put(shared + OPEN, expected - 1)
    waited = 0
    while fetch(shared + OPEN) > 0 and waited < _PATIENCE:
        pause()
        waited += 1
    team = expected - max(0, fetch_add(shared + OPEN, -_CLOSED))
    put(shared + TEAM, team)
    _share(0, team, shared, (commands, count), (views, steps, bases), scratch)
    spins = 0
    while fetch(shared + LEFT) < team - 1:
        spins = _waited(spins)


@compiled(sources=SOURCES)
def follow(shared: int) -> None:
    """Have a part in what another thread leads, until there is nothing for a while."""
    stays, idle, at = _PATIENCE, 0, shared + ARGUMENTS
    while idle < stays:
        # Places are counted down, so that no more come than are wanted; below 1 there is none.
        place = fetch_add(shared + OPEN, -1) if fetch(shared + OPEN) > 0 else 0
        if place < 1:
            pause()
            idle += 1
            continue
        team, spins = fetch(shared + TEAM), 0
        while team == 0:
            spins = _waited(spins)
            team = fetch(shared + TEAM)
        mine = fetch(at) - place
        rows, tables = (
            (fetch(at + 16), fetch(at + 24)),
            (fetch(at + 32), fetch(at + 40), fetch(at + 48)),
        )
        registers = fetch(at + 56) + mine * fetch(at + 64)
        _share(mine, team, shared, rows, tables, registers)
        stays, idle = fetch(at + 8), 0
        fetch_add(shared + LEFT, 1)
    fetch_add(shared + AWAKE, -1)
