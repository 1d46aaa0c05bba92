"""Tasks: each unit of a command is in one of them, and none begins before its sources are done."""

from __future__ import annotations

import ctypes  # noqa: TID251 - so that a command can be watched
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion_ane.engine.plan import layout, run
from orion_ane.engine.plan.commands import Command
from orion_ane.engine.plan.layout import At, Kind, Task
from orion_ane.engine.plan.plan import plan
from orion_ane.engine.plan.tasks import grouped, tasks
from orion_ane.engine.threads import Threads
from orion_ane.ir import Graph
from orion_ane.nn.blocks import gelu
from orion_ane.ops import cast, conv1x1, input_, reduce_mean, weight
from orion_ane.types import DType, TensorType


def command(phase: int, units: int, cost: int) -> Command:
    return Command(Kind.TAPE, (), (), cost=cost, total=max(units, 1), phase=phase, units=units)


made = st.builds(
    command, st.integers(0, 4), st.integers(0, 40) | st.just(32000), st.integers(0, 1 << 26)
)


@given(st.lists(made, max_size=20), st.integers(1, 5))
def test_every_unit_is_in_one_task_and_waits_for_the_phases_before(commands, count):
    ordered = grouped(sorted(commands, key=lambda c: c.phase))
    assert sorted(map(id, ordered)) == sorted(map(id, commands))
    rows = tasks(ordered, count)
    done = {id(c): [] for c in commands}
    before: dict[int, int] = {}
    for number, row in enumerate(rows):
        part = ordered[row[Task.FIRST] : row[Task.FIRST] + row[Task.COUNT]]
        assert len({(c.phase, c.units) for c in part}) == 1
        before.setdefault(part[0].phase, number)
        assert row[Task.NEEDS] == before[part[0].phase]
        for c in part:
            done[id(c)].append((int(row[Task.BEGIN]), int(row[Task.END])))
    for c in commands:
        parts = done[id(c)]
        assert all(a < b for a, b in parts)
        assert [b for _, b in parts] == [*[a for a, _ in parts[1:]], max(c.units, 1)]
        assert parts[0][0] == 0


@pytest.mark.parametrize(("rows", "part", "most"), [(768, 8, 4), (32000, 100, 8)])
def test_a_command_that_is_dealt_out_leaves_little_at_the_end(rows, part, most):
    found = tasks([command(0, rows, rows * 768)], 2)
    sizes = found[:, Task.END] - found[:, Task.BEGIN]
    assert (np.diff(sizes) <= 0).all()
    assert sizes[-1] <= rows // part
    assert len(found) <= most  # each of which begins at another place in memory


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_small_is_one_task_for_each_thread(count):
    assert len(tasks([command(0, 3, 10)], count)) == count
    assert len(tasks([command(0, 0, 10)], count)) == 1


def test_a_thread_with_nothing_to_do_ends_and_may_come_again():
    shared = np.zeros(layout.SHARED, np.int64)
    address = shared.ctypes.data
    for _ in range(2):
        assert run.enlist(address, 1) == 1
        assert run.enlist(address, 1) == 0  # it counts as awake
        thread = threading.Thread(target=run.follow, args=(address, 1000))
        thread.start()
        thread.join(60)
        assert not thread.is_alive()


def test_who_comes_late_has_a_part_and_is_waited_for():
    shared, row = np.zeros(layout.SHARED, np.int64), np.zeros((1, layout.COMMAND_COLUMNS), np.int64)
    address, done, others = shared.ctypes.data, list[int](), list[threading.Thread]()
    leader, came = threading.get_ident(), threading.Event()

    def one_unit(*args: int) -> None:
        here = threading.get_ident()
        if not others:  # the leader's first task
            run.enlist(address, 1)
            others.append(threading.Thread(target=run.follow, args=(address, 1000)))
            others[0].start()
        if here == leader:
            assert came.wait(60)
        else:
            came.set()
            time.sleep(0.05)  # longer than the leader takes for all else
        done.append(args[-2])

    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)(one_unit)
    row[0, At.SPAN], row[0, At.CALL] = 1, ctypes.cast(call, ctypes.c_void_p).value
    parts = tasks([command(0, 16, 1 << 20)], 2)
    at = row.ctypes.data
    run.lead(address, 2, parts.ctypes.data, len(parts), at, 0, 0, 0, 0, 0)
    assert sorted(done) == parts[:, Task.BEGIN].tolist()
    others[0].join(60)


def test_a_norm_in_one_part_does_not_make_one_part_of_all_that_follows():
    """Its one part is one thread's, and so would be a whole body; nothing of it would be freed."""
    x = input_("x", TensorType(DType.FP32, (1, 768, 1, 32)))
    w = weight("w", TensorType(DType.FP32, (768, 768, 1, 1)))
    y = x
    for _ in range(4):
        y = conv1x1(y - reduce_mean(y, (1,)), w)
    graph = Graph({"x": x}, {"y": y})
    weights = {w.op: np.zeros(w.type.shape, np.float32)}
    made = plan(graph, weights, rounds=False, threads=Threads(2))
    assert all(c.units > 1 for c in made.code.commands if c.kind is Kind.WIDE)
    assert made.code.arena < 6 * x.type.elements * 4


@pytest.mark.parametrize("stored", [DType.FP16, DType.FP32])
def test_what_is_dear_follows_the_rows_that_it_reads_with_the_bits_of_its_ops(stored, rng):
    """In whatever parts: 3,000 rows are in no whole blocks."""
    x = input_("x", TensorType(DType.FP32, (1, 64, 1, 1)))
    w = weight("w", TensorType(stored, (3000, 64, 1, 1)))
    b = weight("b", TensorType(DType.FP32, (1, 3000, 1, 1)))
    product = conv1x1(x, cast(w, DType.FP32))
    graph = Graph({"x": x}, {"product": product, "y": gelu(product + b)})
    weights = {
        node.op: rng.standard_normal(node.type.shape).astype(node.type.dtype.numpy) / 4
        for node in (w, b)
    }
    feed = {"x": rng.standard_normal(x.type.shape, np.float32)}
    p = input_("p", product.type)
    apart = plan(
        Graph({"p": p}, {"y": gelu(p + b)}),
        {b.op: weights[b.op]},
        rounds=False,
        threads=Threads(1),
    )
    for count in (1, 2, 3):
        made = plan(graph, weights, rounds=False, threads=Threads(count))
        rows, tape = made.code.commands[0], made.code.commands[-1]
        assert (rows.kind, tape.kind) == (Kind.ROWS, Kind.TAPE)
        assert (rows.phase, rows.units) == (tape.phase, tape.units), "nobody waits between"
        found = made.run(feed)
        np.testing.assert_array_equal(found["y"], apart.run({"p": found["product"]})["y"])
