"""What runs a plan: every thread takes the next task, until there is none.

Who does what is settled as it is done, so a thread that comes late, or that others are given the
processor of, delays nobody by more than a task.
"""

from __future__ import annotations

from orion_ane.engine.jit import compiled, native
from orion_ane.engine.plan import code, layout
from orion_ane.engine.plan.code import (
    call_native,
    fetch,
    fetch_add,
    longs_at,
    pause,
    put,
    yield_processor,
)
from orion_ane.engine.plan.layout import (
    ARGUMENTS,
    AWAKE,
    COMMAND_COLUMNS,
    DONE,
    ENLIST,
    FOLLOW,
    LEAD,
    LEFT,
    OPEN,
    TAKEN,
    TASK_COLUMNS,
)

# Plain numbers: numba compiles them in.
SPAN, CALL = int(layout.At.SPAN), int(layout.At.CALL)
FIRST, COUNT, BEGIN, END, NEEDS = map(int, layout.Task)

SOURCES = (code, layout)

_CLOSED = 1 << 40
_SPINS = 2_000  # pauses before a waiting thread lets others have the processor
_IDLE_SPINS = 64  # pauses between two offers of it by a thread that has nothing to do


@compiled(is_part=True)
def _waited(spins: int) -> int:
    pause()
    if spins > _SPINS:
        yield_processor()
    return spins + 1


@compiled(is_part=True)
def _work(shared: int, tasks_at: int, total: int, tables: tuple[int, int, int, int, int]) -> None:
    """Take task after task, each once what it reads from is done."""
    commands_at, views, steps, bases, registers = tables
    taken = fetch_add(shared + TAKEN, 1)
    while taken < total:
        task, spins = longs_at(tasks_at + 8 * TASK_COLUMNS * taken), 0
        while fetch(shared + DONE) < task[NEEDS]:
            spins = _waited(spins)
        i, last = task[FIRST], task[FIRST] + task[COUNT]
        while i < last:
            command = commands_at + 8 * COMMAND_COLUMNS * i
            span, begin, end = longs_at(command)[SPAN], task[BEGIN], task[END]
            step = end - begin if span == 1 else 1
            while begin < end:
                for j in range(span):
                    at = command + 8 * COMMAND_COLUMNS * j
                    call = longs_at(at)[CALL]
                    call_native(call, at, views, steps, bases, registers, begin, begin + step)
                begin += step
            i += span
        fetch_add(shared + DONE, 1)
        taken = fetch_add(shared + TAKEN, 1)


@native(ENLIST, sources=SOURCES)
def enlist(shared: int, wanted: int) -> int:
    """How many threads must `follow`, so that as many as are wanted do; they count as awake."""
    missing = max(0, wanted - fetch(shared + AWAKE))
    fetch_add(shared + AWAKE, missing)
    return missing


@native(LEAD, sources=SOURCES)
def lead(
    shared: int,
    expected: int,
    tasks: int,
    total: int,
    commands: int,
    views: int,
    steps: int,
    bases: int,
    scratch: int,
    scratch_size: int,
) -> None:
    """Do tasks with the threads that follow, of which there may be one less than expected.

    Whoever comes has a part from then on, and nobody is waited for that has none.

    Args:
        shared: the address of SHARED numbers, which begin as zeros.
        expected: how many threads there may be.
        tasks: the address of rows of `Task`.
        total: how many.
        commands: the address of rows of `At`.
        views: the address of rows of `Of`.
        steps: the address of rows of `In`.
        bases: the address of addresses, which views count from.
        scratch: the address of the threads' own memory.
        scratch_size: bytes of it a thread.
    """
    at = shared + ARGUMENTS
    put(at, expected)
    put(at + 8, tasks)
    put(at + 16, total)
    put(at + 24, commands)
    put(at + 32, views)
    put(at + 40, steps)
    put(at + 48, bases)
    put(at + 56, scratch)
    put(at + 64, scratch_size)
    put(shared + TAKEN, 0)
    put(shared + DONE, 0)
    put(shared + LEFT, 0)
    put(shared + OPEN, expected - 1)
    _work(shared, tasks, total, (commands, views, steps, bases, scratch))
    came = expected - 1 - max(0, fetch_add(shared + OPEN, -_CLOSED))
    spins = 0
    while fetch(shared + LEFT) < came:
        spins = _waited(spins)


@native(FOLLOW, sources=SOURCES)
def follow(shared: int, stays: int) -> None:
    """Have a part in what another thread leads, until there is nothing for `stays` pauses."""
    idle, at = 0, shared + ARGUMENTS
    while idle < stays:
        # Places are counted down, so that no more come than are wanted; below 1 there is none.
        place = fetch_add(shared + OPEN, -1) if fetch(shared + OPEN) > 0 else 0
        if place < 1:
            pause()
            idle += 1
            if idle % _IDLE_SPINS == 0:
                yield_processor()
            continue
        registers = fetch(at + 56) + (fetch(at) - place) * fetch(at + 64)
        tables = fetch(at + 24), fetch(at + 32), fetch(at + 40), fetch(at + 48), registers
        _work(shared, fetch(at + 8), fetch(at + 16), tables)
        idle = 0
        fetch_add(shared + LEFT, 1)
    fetch_add(shared + AWAKE, -1)
