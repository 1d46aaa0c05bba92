"""The one function that runs a plan: every thread reads the same commands and does its share."""

from __future__ import annotations

from typing import Any

import numpy as np

from orion_ane.engine.jit import compiled
from orion_ane.engine.plan import code, curves, kernels, layout, quantised, vectors
from orion_ane.engine.plan.code import (
    fetch,
    fetch_add,
    from_bits,
    half_of,
    pause,
    put,
    value_of,
    yield_processor,
)
from orion_ane.engine.plan.kernels import floats, halves
from orion_ane.engine.plan.layout import BLOCK, COLUMNS, RANK, REGISTER_BYTES
from orion_ane.engine.plan.vectors import add_floats, add_halves, dot_floats, dot_halves
from orion_ane.types import Array

# Plain numbers: numba compiles them in.
_TAPE, _REDUCE, _SOFTMAX, _ROWS, _MATMUL, *_ = map(int, layout.Kind)
_CODES, _UNPACK = int(layout.Kind.CODES), int(layout.Kind.UNPACK)
KIND, WAIT, UNITS, SIZE, TOTAL, VIEW, STEP, STEPS, ROUNDS, A, B, C, SPAN = map(int, layout.At)
BASE, OFFSET, IS_HALF, SHAPE, STRIDE = map(int, layout.Of)
DO, TO, X, Y, Z, STEP_ROUNDS, P, Q = map(int, layout.In)
(
    _LOAD, _STORE, _FILL, _COPY, _ADD, _SUB, _MUL, _DIV, _MAXIMUM, _AT_LEAST,
    _CHOOSE, _CLIP, _RELU, _NEG, _EXP, _TANH, _SIGMOID, _SQRT, _RSQRT,
) = map(int, layout.Do)  # fmt: skip
_SUM, _MEAN, _MAX = map(int, layout.Fold)

SOURCES = (code, curves, kernels, layout, quantised, vectors)

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


# Tapes


@compiled(is_part=True)
def _operand(views: Array, bases: Array, registers: int, at: int, start: int, count: int) -> Any:
    """A block of an operand: a register, or where a packed view has it."""
    if at >= 0:
        return floats(registers + at * REGISTER_BYTES, count)
    view = -1 - at
    return floats(bases[views[view, BASE]] + views[view, OFFSET] + 4 * start, count)


@compiled(is_part=True)
def _place(view: Array, index: int) -> Any:
    """How far from its first an element of a view lies."""
    at, axis = np.int64(0), RANK - 1
    while index:
        size = view[SHAPE + axis]
        up = index // size
        at += (index - up * size) * view[STRIDE + axis]
        index = up
        axis -= 1
    return at


@compiled(is_part=True)
def _load(view: Array, base: int, start: int, to: Array) -> None:
    """The elements from `start` on of a view of any strides."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done, count = 0, to.shape[0]
    while done < count:
        at = _place(view, start + done)
        run = min(inner - (start + done) % inner, count - done)
        part = to[done : done + run]
        reach = (run - 1) * step + 1
        if view[IS_HALF]:
            found = halves(base + 2 * at, reach)
            kernels.copy(found, step, part)
        else:
            wide = floats(base + 4 * at, reach)
            if step == 0:
                kernels.fill(part, wide[0])
            else:
                kernels.copy(wide, step, part)
        done += run


@compiled(is_part=True)
def _store(view: Array, base: int, start: int, x: Array) -> None:
    """Write to the elements from `start` on of a view of any strides, or of a packed fp16 one."""
    inner, step = view[SHAPE + RANK - 1], view[STRIDE + RANK - 1]
    done, count = 0, x.shape[0]
    while done < count:
        at = _place(view, start + done)
        run = min(inner - (start + done) % inner, count - done)
        part = x[done : done + run]
        reach = (run - 1) * step + 1
        if view[IS_HALF]:
            kernels.narrow(part, halves(base + 2 * at, reach))
        else:
            kernels.spread(part, floats(base + 4 * at, reach), step)
        done += run


@compiled(is_part=True)
def _tape(  # noqa: PLR0915 - one function, since what it calls is compiled again in each caller
    c: Array, views: Array, steps: Array, bases: Array, registers: int, begin: int, end: int
) -> None:
    """All steps on one block after the other."""
    at, stop = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    is_first = True
    while at < stop:
        count = min(BLOCK, stop - at)
        for i in range(c[STEP], c[STEP] + c[STEPS]):
            s = steps[i]
            do = s[DO]
            if do in (_LOAD, _FILL):
                if do == _LOAD or is_first:
                    view = views[s[X]]
                    z = floats(registers + s[TO] * REGISTER_BYTES, count)
                    _load(view, bases[view[BASE]] + view[OFFSET], at if do == _LOAD else 0, z)
                continue
            x = _operand(views, bases, registers, s[X], at, count)
            if do == _STORE:
                view = views[s[TO]]
                _store(view, bases[view[BASE]] + view[OFFSET], at, x)
                continue
            z = _operand(views, bases, registers, s[TO], at, count)
            y = _operand(views, bases, registers, s[Y], at, count)
            if do == _ADD:
                kernels.add(x, y, z)
            elif do == _MUL:
                kernels.mul(x, y, z)
            elif do == _SUB:
                kernels.sub(x, y, z)
            elif do == _DIV:
                kernels.div(x, y, z)
            elif do == _MAXIMUM:
                kernels.larger(x, y, z)
            elif do == _AT_LEAST:
                kernels.at_least(x, y, z)
            elif do == _CHOOSE:
                w = _operand(views, bases, registers, s[Z], at, count)
                kernels.choose(x, y, w, z)
            elif do == _CLIP:
                low, high = np.float32(from_bits(s[P])), np.float32(from_bits(s[Q]))
                kernels.clip(x, low, high, z)
            elif do == _RELU:
                kernels.relu(x, z)
            elif do == _NEG:
                kernels.neg(x, z)
            elif do == _EXP:
                kernels.exp(x, z)
            elif do == _TANH:
                kernels.tanh(x, z)
            elif do == _SIGMOID:
                kernels.sigmoid(x, z)
            elif do == _SQRT:
                kernels.sqrt(x, z)
            elif do == _RSQRT:
                kernels.rsqrt(x, np.float32(from_bits(s[P])), z)
            else:
                kernels.copy(x, 1, z)
            if s[STEP_ROUNDS]:
                kernels.round_halves(z)
        at += count
        is_first = False


# Rows


@compiled(is_part=True)
def _address(views: Array, bases: Array, view: int) -> Any:
    return bases[views[view, BASE]] + views[view, OFFSET]


@compiled(is_part=True)
def _reduce(c: Array, views: Array, bases: Array, registers: int, begin: int, end: int) -> None:
    """x [outer, A, B] to y [outer, 1, B]; a job is a row, or COLUMNS columns."""
    x, y = _address(views, bases, c[VIEW]), _address(views, bases, c[VIEW] + 1)
    rows, inner, fold = c[A], c[B], c[C]
    lanes = floats(registers, kernels.LANES)
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        outer, first = job // blocks, job % blocks * COLUMNS
        width = min(COLUMNS, inner - first)
        source = x + 4 * (outer * rows * inner + first)
        z = floats(y + 4 * (outer * inner + first), width)
        if inner == 1:
            row = floats(source, rows)
            z[0] = kernels.largest_of(row, lanes) if fold == _MAX else kernels.sum_of(row, lanes)
        else:
            kernels.copy(floats(source, width), 1, z)
            for r in range(1, rows):
                line = floats(source + 4 * r * inner, width)
                if fold == _MAX:
                    kernels.raise_to(z, line)
                else:
                    kernels.add_to(z, line)
        if fold == _MEAN:
            kernels.divide_by(z, np.float32(rows))
        if c[ROUNDS]:
            kernels.round_halves(z)


@compiled(is_part=True)
def _softmax(c: Array, views: Array, bases: Array, registers: int, begin: int, end: int) -> None:
    """Along the last axis of [outer, A]; a job is a row."""
    x, y = _address(views, bases, c[VIEW]), _address(views, bases, c[VIEW] + 1)
    size, lowest = c[A], np.finfo(np.float32).min
    lanes = floats(registers, kernels.LANES)
    for job in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        row, z = floats(x + 4 * job * size, size), floats(y + 4 * job * size, size)
        top = kernels.largest_of(row, lanes)
        top = max(top, lowest)
        kernels.exp_of_difference(row, top, z)
        total = kernels.sum_of(z, lanes)
        kernels.divide_by(z, max(total, np.float32(1)))
        if c[ROUNDS]:
            kernels.round_halves(z)


# Products


@compiled(is_part=True)
def _rounded(x: Any, rounds: int) -> Any:
    return value_of(half_of(x)) if rounds else x


@compiled(is_part=True)
def _rows(c: Array, views: Array, bases: Array, registers: int, begin: int, end: int) -> None:
    """y [O, C] = w [O, A] x [C, A]ᵀ, each row of w read once; B is C, few."""
    w, x = _address(views, bases, c[VIEW]), _address(views, bases, c[VIEW] + 1)
    y = _address(views, bases, c[VIEW] + 2)
    inner, columns, rounds, is_half = c[A], c[B], c[ROUNDS], views[c[VIEW], IS_HALF]
    for o in range(begin * c[SIZE], min(end * c[SIZE], c[TOTAL])):
        z = floats(y + 4 * o * columns, columns)
        if is_half and columns == 1:
            z[0] = _rounded(dot_halves(w + 2 * o * inner, x, inner), rounds)
            continue
        row = w + 4 * o * inner
        if is_half:
            row = registers
            kernels.copy(halves(w + 2 * o * inner, inner), 1, floats(row, inner))
        for s in range(columns):
            z[s] = _rounded(dot_floats(row, x + 4 * s * inner, inner), rounds)


@compiled(is_part=True)
def _matmul(c: Array, views: Array, bases: Array, registers: int, begin: int, end: int) -> None:
    """Rows of z [.., A, B] = x [.., A, C] y [.., C, B]; y's view has its axes as [.., B, C]."""
    x, y = _address(views, bases, c[VIEW]), _address(views, bases, c[VIEW] + 1)
    z = _address(views, bases, c[VIEW] + 2)
    xv, yv = views[c[VIEW]], views[c[VIEW] + 1]
    m, n, k, rounds = c[A], c[B], c[C], c[ROUNDS]
    x_step, y_step, y_row = xv[STRIDE + 4], yv[STRIDE + 4], yv[STRIDE + 3]
    is_half = yv[IS_HALF]
    y_size = 4 - 2 * is_half
    job, stop = begin * c[SIZE], min(end * c[SIZE], c[TOTAL])
    while job < stop:
        batch = job // m
        first = job - batch * m
        last = min(m, first + stop - job)
        x_at, y_at = np.int64(0), np.int64(0)
        for axis in range(2, -1, -1):
            index = batch % xv[SHAPE + axis]
            batch //= xv[SHAPE + axis]
            x_at += index * xv[STRIDE + axis]
            y_at += index * yv[STRIDE + axis]
        source = y + y_size * y_at
        for i in range(first, last):
            row, at = registers, x_at + i * xv[STRIDE + 3]
            if xv[IS_HALF]:
                kernels.copy(halves(x + 2 * at, (k - 1) * x_step + 1), x_step, floats(row, k))
            elif x_step == 1:
                row = x + 4 * at
            else:
                kernels.copy(floats(x + 4 * at, (k - 1) * x_step + 1), x_step, floats(row, k))
            out = z + 4 * (job + i - first) * n
            _row_of_matmul(row, source, out, (n, k), is_half, y_step, y_row)
            if rounds:
                kernels.round_halves(floats(out, n))
        job += last - first


@compiled(is_part=True)
def _row_of_matmul(
    row: int, y: int, out: int, sizes: tuple[int, int], is_half: int, y_step: int, y_row: int
) -> None:
    """Dot products where y's columns are packed, else scaled rows of y one after the other."""
    (n, k), size = sizes, 4 - 2 * is_half
    if y_step == 1:
        results = floats(out, n)
        for j in range(n):
            at = y + size * j * y_row
            results[j] = dot_halves(at, row, k) if is_half else dot_floats(at, row, k)
        return
    kernels.fill(floats(out, n), np.float32(0))
    factors = floats(row, k)
    for j in range(k):
        at = y + size * j * y_step
        if is_half:
            add_halves(factors[j], at, out, n)
        else:
            add_floats(factors[j], at, out, n)


# All of it


@compiled(sources=SOURCES)
def run_share(
    commands: Array,
    views: Array,
    steps: Array,
    bases: Array,
    counters: int,
    scratch: int,
    scratch_size: int,
    expected: int,
) -> None:
    """What one thread of `expected` does in a plan.

    Args:
        commands: a row of `At` each.
        views: a row of `Of` each.
        steps: a row of `In` each.
        bases: addresses, which views count from.
        counters: the address of COUNTERS zeros, which the threads share.
        scratch: the address of the threads' own memory.
        scratch_size: bytes of it a thread.
        expected: how many threads there should be.
    """
    mine, team = (0, 1) if expected == 1 else _join(counters, expected)
    if mine < 0:
        return
    registers = scratch + mine * scratch_size
    i = 0
    while i < commands.shape[0]:
        head = commands[i]
        if head[WAIT] and team > 1:
            _meet(counters, team)
        units, span = head[UNITS], head[SPAN]
        begin, end = mine * units // team, (mine + 1) * units // team
        if units == 0:
            begin, end = np.int64(0), np.int64(1 if mine == 0 else 0)
        step = end - begin if span == 1 else np.int64(1)
        while begin < end:
            for j in range(i, i + span):
                c = commands[j]
                kind = c[KIND]
                if kind == _TAPE:
                    _tape(c, views, steps, bases, registers, begin, begin + step)
                elif kind == _ROWS:
                    _rows(c, views, bases, registers, begin, begin + step)
                elif kind == _MATMUL:
                    _matmul(c, views, bases, registers, begin, begin + step)
                elif kind == _CODES:
                    quantised.rows_of_codes(c, views, bases, registers, begin, begin + step)
                elif kind == _UNPACK:
                    quantised.unpack_rows(c, views, bases, begin, begin + step)
                elif kind == _REDUCE:
                    _reduce(c, views, bases, registers, begin, begin + step)
                else:
                    _softmax(c, views, bases, registers, begin, begin + step)
            begin += step
        i += span
