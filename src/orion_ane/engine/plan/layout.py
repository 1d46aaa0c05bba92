"""Where things stand in the rows of a plan: commands, views of memory, and steps of a tape.

All three are tables of int64, since one compiled function reads them.
"""

from __future__ import annotations

from enum import IntEnum

BLOCK = 1024  # elements of a register: 4 KiB, so that a few fit in the nearest cache
REGISTER_BYTES = 4 * BLOCK
COLUMNS = 64  # of a reduction over rows, or a row's product: what a thread sums side by side
RANK = 5
THIN_COLUMNS = 16  # up to here reading the weight costs more than multiplying by it
NORM_ROWS = 4  # of COLUMNS numbers that a norm keeps
SMALL_PRODUCT = 1 << 15  # multiply-adds that are sooner done row by row than laid out
WIDE = 16  # rows and columns that a product has at least, to be laid out
MANY = 1 << 32  # no table has so many rows: where one ends is its reader's business
DEPTH = 256  # of the inner axis of a wide product: what is summed before it is added


class Kind(IntEnum):
    """What a command does."""

    TAPE = 0
    REDUCE = 1
    SOFTMAX = 2
    ROWS = 3
    MATMUL = 4
    PANELS = 5
    """The right side of a wide product laid out for it."""
    WIDE = 6
    CODES = 7
    """Rows of an int8 weight times few columns."""
    UNPACK = 8
    """Rows of an int8 weight as fp32."""
    COLUMNS = 9
    """A row times a matrix, by stretches of its columns."""
    ATTEND = 10
    """The attention of one token to a cache and to itself."""
    ROTATE = 11
    """Rotary positions."""
    NORM = 12
    """A value over the root of the mean of its squares."""


class At(IntEnum):
    """Columns of a command."""

    KIND = 0
    UNITS = 1
    """What is dealt out among threads; 0: one of them does all of it."""
    SIZE = 2
    """Of a unit: elements of a tape, rows of a matmul, jobs of a reduction."""
    TOTAL = 3
    """Elements, rows or jobs in all."""
    VIEW = 4
    """The first of its views."""
    STEP = 5
    """The first step of its tape."""
    STEPS = 6
    """How many; of an attention, where it stands how far its values are filled; D: its keys."""
    ROUNDS = 7
    """Whether results are rounded to fp16."""
    A = 8
    B = 9
    C = 10
    D = 11
    SPAN = 12
    """How many commands, from this on, are done unit by unit: all on one, then on the next."""
    CALL = 13
    """The address of the code that does it."""


class Task(IntEnum):
    """Columns of a task: what one thread does without a break."""

    FIRST = 0
    """The first of its commands, which follow one another in the table."""
    COUNT = 1
    """How many."""
    BEGIN = 2
    """The first unit that it does of each."""
    END = 3
    NEEDS = 4
    """How many tasks, from the first on, must be done before."""


class Of(IntEnum):
    """Columns of a view."""

    BASE = 0
    OFFSET = 1
    """Bytes from the base."""
    IS_HALF = 2
    SHAPE = 3
    STRIDE = 8
    """Elements from one to the next on each axis."""


class In(IntEnum):
    """Columns of a step.  An operand is a register, or a view v written -1 - v."""

    DO = 0
    TO = 1
    X = 2
    Y = 3
    Z = 4
    ROUNDS = 5
    P = 6
    Q = 7


class Do(IntEnum):
    """What a step does to a block."""

    LOAD = 0
    """A view of any strides to a register."""
    STORE = 1
    """A register to a view of any strides."""
    FILL = 2
    """A view of one element to a register that keeps it."""
    COPY = 3
    ADD = 4
    SUB = 5
    MUL = 6
    DIV = 7
    MAXIMUM = 8
    AT_LEAST = 9
    CHOOSE = 10
    CLIP = 11
    RELU = 12
    NEG = 13
    EXP = 14
    TANH = 15
    SIGMOID = 16
    SQRT = 17
    RSQRT = 18


class Fold(IntEnum):
    """What a reduction makes of a row."""

    SUM = 0
    MEAN = 1
    MAX = 2


COMMAND = "void(int64, int64, int64, int64, int64, int64, int64)"
"""What does a command takes: the addresses of its row, of the views, of the steps and of the
bases, then of the thread's own memory, and its units, from one to before another."""

ENLIST, FOLLOW = "int64(int64, int64)", "void(int64, int64)"
LEAD = f"void({', '.join(['int64'] * 10)})"
"""What those take that run commands; see there."""

# What the threads of a process share, each number in cache lines of its own
TAKEN, DONE, OPEN, LEFT, AWAKE, ARGUMENTS = range(0, 128 * 6, 128)
SHARED = (ARGUMENTS + 128) // 8

COMMAND_COLUMNS = len(At)
TASK_COLUMNS = len(Task)
VIEW_COLUMNS = Of.STRIDE + RANK
STEP_COLUMNS = len(In)
