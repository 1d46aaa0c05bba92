"""The one function that runs a plan: every thread reads the same commands and does its share."""

from __future__ import annotations

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan import code, kernels, layout
from orion_ane.engine.plan.code import call_native, fetch, fetch_add, pause, put, yield_processor
from orion_ane.engine.plan.kernels import table
from orion_ane.engine.plan.layout import COMMAND_COLUMNS

# Plain numbers: numba compiles them in.
WAIT, UNITS, SPAN, CALL = (int(layout.At[name]) for name in ("WAIT", "UNITS", "SPAN", "CALL"))

SOURCES = (code, kernels, layout)

# Counters, each in a cache line of its own
ARRIVED, TURN, JOINED, TEAM = 0, 128, 256, 384
COUNTERS = 512 // 8
_CLOSED = 1 << 40
_PATIENCE = 20_000  # pauses that the first thread waits for others to start, under a millisecond
_SPINS = 2_000  # pauses before a waiting thread lets others have the processor


@compiled(is_part=True)
def _join(counters: int, expected: int) -> tuple[int, int]:
    """This thread's number and how many take part; the first waits for the others, but not long.

    Who comes later has no part: the number of -1.
    """
    mine = fetch_add(counters + JOINED, 1)
    if mine >= _CLOSED:
        return -1, 0
    if mine == 0:
        waited = 0
        while fetch(counters + JOINED) < expected and waited < _PATIENCE:
            pause()
            waited += 1
        team = fetch_add(counters + JOINED, _CLOSED)
        put(counters + TEAM, team)
        return 0, team
    spins = 0
    team = fetch(counters + TEAM)
    while team == 0:
        spins = _waited(spins)
        team = fetch(counters + TEAM)
    return mine, team


@compiled(is_part=True)
def _waited(spins: int) -> int:
    pause()
    if spins > _SPINS:
        yield_processor()
    return spins + 1


@compiled(is_part=True)
def _meet(counters: int, team: int) -> None:
    """Wait until every thread is here."""
    turn = fetch(counters + TURN)
    if fetch_add(counters + ARRIVED, 1) + 1 == team:
        put(counters + ARRIVED, 0)
        put(counters + TURN, turn + 1)
        return
    spins = 0
    while fetch(counters + TURN) == turn:
        spins = _waited(spins)


# All of it


@compiled(sources=SOURCES)
def run_share(
    commands_at: int,
    count: int,
    views: int,
    steps: int,
    bases: int,
    counters: int,
    scratch: int,
    scratch_size: int,
    expected: int,
) -> None:
    """What one thread of `expected` does in a plan.

    Args:
        commands_at: the address of rows of `At`.
        count: how many.
        views: the address of rows of `Of`.
        steps: the address of rows of `In`.
        bases: the address of addresses, which views count from.
        counters: the address of COUNTERS zeros, which the threads share.
        scratch: the address of the threads' own memory.
        scratch_size: bytes of it a thread.
        expected: how many threads there should be.
    """
    mine, team = (0, 1) if expected == 1 else _join(counters, expected)
    if mine < 0:
        return
    commands, registers = table(commands_at, COMMAND_COLUMNS), scratch + mine * scratch_size
    i = 0
    while i < count:
        if commands[i, WAIT] and team > 1:
            _meet(counters, team)
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
