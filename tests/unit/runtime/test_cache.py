from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import BackendError, BudgetError, ConfigError
from orion_ane.ir import Graph
from orion_ane.mil.program import Buffer, Program
from orion_ane.runtime.cache import DEFAULT_CAPACITY, CacheCounts, ProgramCache
from orion_ane.types import Array, DType, TensorType


class Loaded:
    """A loaded program that only knows whether it is closed."""

    def __init__(self, program: Program, device: Device) -> None:
        self.program, self.device, self.closes = program, device, 0

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self.closes:
            raise BackendError("run", "the program is closed")
        return dict(inputs)

    def reload(self, weights: Mapping[str, Buffer]) -> None:
        raise BackendError("reload", "this device cannot")

    def close(self) -> None:
        self.closes += 1
        self.device.loaded -= 1


class Device:
    """A device that counts, may be slow, and has room for `room` programs."""

    name = "fake"
    target = None

    def __init__(self, room: int = 1000, compile_s: float = 0) -> None:
        self.room, self.compile_s = room, compile_s
        self.compiles = self.loaded = self.most = self.busy = 0

    def compile(self, program: Program) -> Loaded:
        self.busy += 1
        assert self.busy == 1, "two threads compile at once"
        time.sleep(self.compile_s)
        self.busy -= 1
        if self.loaded == self.room:
            raise BudgetError("compile", "no room")
        self.compiles += 1
        self.loaded += 1
        self.most = max(self.most, self.loaded)
        return Loaded(program, self)


def program(number: float, *, weight: float = 0, port: str = "x") -> Program:
    x = o.input_(port, TensorType(DType.FP16, (4,)))
    y = o.exp(x + o.const(number, DType.FP16)) + o.weight("w", x.type)
    graph = Graph({port: x}, {"y": y})
    return compile_graph(graph, {"w": np.full(4, weight, np.float16)}, target=None)


def test_a_program_is_compiled_once():
    cache = ProgramCache(Device())
    first = cache.get(program(1))
    assert cache.get(program(1)) is first
    assert cache.get(program(2)) is not first
    assert cache.counts == CacheCounts(compiles=2, hits=1, evictions=0)
    assert len(cache) == 2


def test_other_weights_and_other_port_names_are_another_program():
    cache = ProgramCache(Device())
    found = [
        cache.get(program(1)),
        cache.get(program(1, weight=1)),
        cache.get(program(1, port="z")),
    ]
    assert len(set(found)) == 3


def test_port_names_count_where_texts_are_equal():
    """`a.b` and `a:b` may both be spelled `a_b`, but each is fed by its own name."""
    one = program(1)
    port = type(one.inputs[0])
    other = Program(one.text, one.weights, (port("y", "x", one.inputs[0].type),), one.outputs)
    cache = ProgramCache(Device())
    assert cache.get(one).program.inputs != cache.get(other).program.inputs


def test_the_longest_unused_goes_first_and_is_closed():
    device = Device()
    cache = ProgramCache(device, capacity=2)
    first, second = cache.get(program(1)), cache.get(program(2))
    assert cache.get(program(1)) is first  # used again, so the second is the oldest now
    third = cache.get(program(3))
    assert (first.closes, second.closes, third.closes) == (0, 1, 0)
    assert cache.get(program(1)) is first
    assert cache.get(program(2)) is not second
    assert third.closes == 1
    assert cache.counts == CacheCounts(compiles=4, hits=2, evictions=2)
    assert len(cache) == 2


def test_never_more_than_the_capacity_are_loaded():
    device = Device(room=3)
    cache = ProgramCache(device, capacity=3)
    for number in range(10):
        cache.get(program(number))
    assert (device.most, device.loaded) == (3, 3)


def test_a_refused_program_is_not_kept():
    device = Device(room=1)
    cache = ProgramCache(device)
    cache.get(program(1))
    with pytest.raises(BudgetError):
        cache.get(program(2))
    assert len(cache) == 1
    assert cache.counts == CacheCounts(compiles=1)
    device.room = 2
    cache.get(program(2))
    assert len(cache) == 2


def test_closing_unloads_everything_once():
    device = Device()
    with ProgramCache(device) as cache:
        loaded = [cache.get(program(number)) for number in range(3)]
    assert [one.closes for one in loaded] == [1, 1, 1]
    assert (device.loaded, len(cache)) == (0, 0)
    cache.close()
    assert [one.closes for one in loaded] == [1, 1, 1]
    assert cache.get(program(0)) is not loaded[0]


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_cache_without_room_is_refused(capacity):
    with pytest.raises(ConfigError, match=f"no room for a program: got {capacity}"):
        ProgramCache(Device(), capacity=capacity)


def test_the_default_leaves_room_under_the_devices_limit():
    assert DEFAULT_CAPACITY < 119


def test_threads_share_a_cache():
    device = Device(compile_s=0.001)
    cache = ProgramCache(device, capacity=4)
    programs = [program(number) for number in range(6)]

    def ask(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(6, size=40):
            assert cache.get(programs[number]).program is programs[number]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [None] * 4  # a thread's failure is raised here
    counts = cache.counts
    assert counts.hits + counts.compiles == 4 * 40
    assert counts.compiles == device.compiles == counts.evictions + len(cache)
    assert device.most <= 4
