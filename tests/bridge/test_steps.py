"""Training on device `ane`: two messages a sequence, and the emulator's numbers bit for bit."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from stand_in_build import environment
from torch_models import random_tensors, tiny_gpt2, tiny_llama

from orion_ane.host.schedule import Schedule
from orion_ane.lora.adapted import Adapted, tensors_of
from orion_ane.lora.adapter import fresh
from orion_ane.lora.config import AdapterConfig
from orion_ane.models.build import decoder_of
from orion_ane.runtime import Backend, backend
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.train.batch import Batch
from orion_ane.train.network import Network
from orion_ane.train.step import Recipe, Trainer
from orion_ane.train.updates import updates as way_of

LANES = 32
SIZES = {"vocab": 40, "context": LANES, "dim": 12, "hidden": 20}
LLAMA = tiny_llama(**SIZES)


@pytest.fixture(autouse=True)
def no_ranges(monkeypatch) -> None:
    """Neither device shows ranges, by which gradients' scales are chosen: no hardware does."""
    monkeypatch.setattr("orion_ane.train.placed.shows_ranges", lambda _: False)


@pytest.fixture(scope="module")
def emulator() -> Backend:
    return backend("emulator", target="strict", threads=1)


@pytest.fixture(scope="module")
def host() -> Backend:
    return backend("cpu", threads=1)


def rows(count: int) -> Batch:
    return Batch.of(np.random.default_rng(5).integers(0, SIZES["vocab"], (count, LANES + 1)))


def learnt(config, device, host, updates: str, kills: bool = False):
    """The losses of two steps of two rows, and all that they made of the tensors."""
    tensors = random_tensors(config, np.random.default_rng(3))
    made = Trainer(decoder_of(config), tensors, device, Recipe(Schedule(1e-2, 20)),
                   seq=LANES, updates=updates, host=host, threads=1)  # fmt: skip
    losses = []
    for step in range(2):
        if kills and step:
            os.kill(device.worker, signal.SIGKILL)
        losses.append(made.step([rows(2)]).loss)
    losses.append(made.network.loss([rows(2)], made.state.masters).loss)
    made.network.close()
    return losses, made.state.masters


def assert_same(found, want) -> None:
    assert found[0] == want[0]
    assert len(set(found[0])) == len(found[0])  # it does learn
    assert found[1].keys() == want[1].keys()
    for name, array in want[1].items():
        np.testing.assert_array_equal(found[1][name], array, err_msg=name)


@pytest.fixture(scope="module")
def wanted(emulator, host):
    """What the emulator learns, once for all ways that load the same weights."""
    known = {}

    def found(config, updates: str):
        key = config, updates == "input"
        if key not in known:
            known[key] = learnt(config, emulator, host, "input" if key[1] else "donor")
        return known[key]

    return found


@pytest.mark.parametrize(
    ("config", "updates"),
    [(LLAMA, "donor"), (LLAMA, "input"), (LLAMA, "recompile"), (tiny_gpt2(**SIZES), "donor")],
    ids=["llama donor", "llama input", "llama recompile", "gpt2 donor"],
)
def test_training_gives_the_emulators_numbers(config, updates, neural_engine, host, wanted):
    assert_same(learnt(config, neural_engine, host, updates), wanted(config, updates))


def test_reload_trains_where_the_device_takes_new_weights(stand_in, monkeypatch, host, wanted):
    for name, value in environment(stand_in, target="strict").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STANDIN_SWITCHES", "reload=1")
    taking = NeuralEngine()
    assert_same(learnt(LLAMA, taking, host, "reload"), wanted(LLAMA, "reload"))
    taking.close()


def test_so_it_does_with_the_head_on_the_device_and_a_worker_that_is_killed(
    neural_engine, emulator
):
    config = tiny_llama(**SIZES, tied=False)
    want = learnt(config, emulator, None, "input")
    respawns = neural_engine.respawns
    assert_same(learnt(config, neural_engine, None, "input", kills=True), want)
    assert neural_engine.respawns - respawns == 1


def test_a_sequence_is_two_messages_and_what_only_the_way_back_reads_stays(neural_engine, host):
    config = tiny_llama(**SIZES, layers=3)
    tensors = random_tensors(config, np.random.default_rng(3))
    way = way_of("donor", neural_engine, verify=False)
    made = Network(decoder_of(config), tensors, way, host=host, lanes=LANES, threads=1)
    made.gradients([rows(1)], tensors, scale=64.0)
    for count in (1, 3):
        trips = neural_engine.round_trips
        made.gradients([rows(count)], tensors, scale=64.0)
        assert neural_engine.round_trips - trips == 2 * count
    before = neural_engine.bytes_copied
    made.gradients([rows(1)], tensors, scale=64.0)
    copied = (neural_engine.bytes_copied - before) // 2
    apart = sum(
        port.type.nbytes
        for each in made._placed[:-1]
        for loaded in each.loaded
        for port in (*loaded.program.inputs, *loaded.program.outputs)
    )
    assert copied < apart / 2
    trips = neural_engine.round_trips
    made.loss([rows(2)], tensors)
    assert neural_engine.round_trips - trips == 2
    made.close()


def test_adapters_are_learnt_as_on_the_emulator(neural_engine, emulator):
    config = LLAMA
    adapter = fresh(config, AdapterConfig(4, 8.0, ("q_proj", "down_proj"), dropout=0.25), seed=1)
    decoder = Adapted(decoder_of(config), adapter.config)
    masters = {name: np.array(array) for name, array in tensors_of(adapter).items()}
    rng = np.random.default_rng(4)
    for array in masters.values():
        array[...] = rng.normal(0, 0.3, array.shape)
    apart = []
    for device in (emulator, neural_engine):
        made = Network(
            decoder, masters, way_of("input", device, verify=False), host=None, lanes=LANES,
            frozen=random_tensors(config, np.random.default_rng(3)),
            dropout=decoder.dropout(seed=11), threads=1,
        )  # fmt: skip
        apart.append([made.gradients([rows(2)], masters, scale=64.0).arrays for _ in range(2)])
        made.close()
    for found, want in zip(*reversed(apart), strict=True):
        assert found.keys() == want.keys() == masters.keys()
        for name, array in want.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert any(array.any() for array in want.values())
