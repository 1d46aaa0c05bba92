"""Device `ane` through its worker: what kills it, and what comes after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from programs import OF, answer, feed, scaled
from stand_in_build import environment

from orion_ane.ane.targets import TARGETS
from orion_ane.errors import BackendError, BudgetError, LimitError, MilError
from orion_ane.mil import Program
from orion_ane.runtime import backend
from orion_ane.runtime.backends.neural_engine import folders
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.runtime.backends.neural_engine.machine import probe_file
from orion_ane.runtime.chain import Call, Lanes, Rescaled
from orion_ane.types import DType, TensorType


@pytest.fixture(autouse=True)
def here(workers) -> None:
    """Workers find the stand-in."""


@pytest.fixture
def engine() -> Iterator[NeuralEngine]:
    """A worker that a test may end."""
    made = NeuralEngine()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(stand_in, tmp_path_factory) -> Iterator[NeuralEngine]:
    """One worker for all tests that leave it alive: it starts slowly."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(stand_in).items():
            patch.setenv(name, value)
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr("tempfile.tempdir", None)
        made = NeuralEngine()
    yield made
    made.close()
    assert made.respawns == 0


def assert_runs(loaded, by: float, seed: int = 0) -> None:
    fed = feed(seed)
    np.testing.assert_array_equal(loaded.run(fed)["y"], answer(by, fed))


def test_programs_run_as_they_mean(shared):
    before = shared.compiles, shared.loads
    loaded = shared.compile(scaled(3))
    for seed in range(3):
        assert_runs(loaded, 3, seed)
    assert (shared.compiles, shared.loads) == (before[0] + 1, before[1])


def test_one_run_is_one_round_trip_and_copies_its_ports_twice(shared):
    """Into the file that both map and from there to the surface, and back."""
    engine = shared
    loaded, fed = engine.compile(scaled(3)), feed()
    loaded.run(fed)
    trips, copied = engine.round_trips, engine.bytes_copied
    loaded.run(fed)
    assert engine.round_trips - trips == 1
    assert engine.bytes_copied - copied == 2 * 3 * fed["x"].nbytes


def test_donor_and_reload_are_the_devices(shared):
    engine, before = shared, (shared.compiles, shared.loads)
    donor = engine.compile(scaled(2))
    loaded = engine.load(scaled(3), donor=donor)
    assert_runs(loaded, 3)
    assert_runs(donor, 2)
    donor.reload(scaled(5).weights)
    assert_runs(donor, 2)  # strict keeps old weights on reload
    assert (engine.compiles, engine.loads) == (before[0] + 1, before[1] + 1)


def test_a_device_that_takes_new_weights_on_reload_runs_with_them(monkeypatch):
    monkeypatch.setenv("STANDIN_SWITCHES", "reload=1")
    engine = NeuralEngine()
    loaded = engine.compile(scaled(2))
    loaded.reload(scaled(5).weights)
    assert_runs(loaded, 5)
    engine.close()


def test_what_breaks_a_limit_never_reaches_the_device(shared):
    engine = shared
    engine._clear()  # what others have left
    trips = engine.round_trips
    text = scaled(2).text.replace("mul", "rsqrt", 1)
    with pytest.raises((LimitError, MilError)):
        engine.compile(Program(text, scaled(2).weights, scaled(2).inputs, scaled(2).outputs))
    assert engine.round_trips == trips


# What ends a worker


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_worker_that_dies_between_runs_is_replaced_without_a_word_to_the_caller(engine, name):
    first, second = engine.compile(scaled(2)), engine.compile(scaled(3))
    by_donor = engine.load(scaled(7), donor=second)
    second.close()
    os.kill(engine.worker, getattr(signal, name))
    assert_runs(by_donor, 7)
    assert_runs(first, 2)
    assert engine.respawns == 1


def test_a_worker_that_dies_of_a_run_is_replaced_and_the_run_is_done(monkeypatch, tmp_path):
    monkeypatch.setenv("STANDIN_SWITCHES", "crash=1")
    monkeypatch.setenv("STANDIN_ONCE", str(tmp_path / "once"))
    engine = NeuralEngine()
    loaded = engine.compile(scaled(2))
    assert_runs(loaded, 2)
    assert engine.respawns == 1
    engine.close()


def test_a_run_that_kills_every_worker_ends_in_an_error_that_names_how(monkeypatch):
    monkeypatch.setenv("STANDIN_SWITCHES", "crash=1")
    engine = NeuralEngine()
    loaded = engine.compile(scaled(2))
    with pytest.raises(BackendError, match="a run that gives y: the worker ended: got SIGSEGV"):
        loaded.run(feed())
    engine.close()


def test_an_objective_c_exception_is_named_and_the_next_worker_runs_on(monkeypatch, tmp_path):
    monkeypatch.setenv("STANDIN_SWITCHES", "raise=1")
    monkeypatch.setenv("STANDIN_ONCE", str(tmp_path / "once"))
    engine = NeuralEngine()
    loaded = engine.compile(scaled(2))
    with pytest.raises(BackendError, match="NSInternalInconsistencyException: the stand-in raised"):
        loaded.run(feed())
    assert_runs(loaded, 2)
    engine.close()


def test_a_device_that_hangs_is_ended_after_its_time(monkeypatch, tmp_path):
    """Case A23: the error names what was waited for, and this process lives on."""
    monkeypatch.setenv("STANDIN_SWITCHES", "hang=1")
    monkeypatch.setenv("STANDIN_ONCE", str(tmp_path / "once"))
    engine = NeuralEngine()
    loaded = engine.compile(scaled(2))
    engine.process._timeout_s = 0.5  # this worker's alone: the next one may take its time
    with pytest.raises(BackendError, match=r"a run that gives y: no answer in 0.5 s"):
        loaded.run(feed())
    assert_runs(loaded, 2)
    engine.close()


def test_a_worker_is_replaced_before_its_process_has_compiled_too_much(monkeypatch):
    engine = NeuralEngine(compiles_each=3)
    kept = engine.compile(scaled(2))
    for by in (3, 4, 5):
        engine.compile(scaled(by)).close()
    assert engine.respawns == 1
    assert_runs(kept, 2)
    engine.close()


def test_a_compile_too_soon_after_a_failed_one_is_refused(monkeypatch):
    """Each failure restarts the compile service, and slows all who use it."""
    monkeypatch.setenv("STANDIN_SWITCHES", "fail_compiles=1")
    now = [0.0]
    engine = NeuralEngine(clock=lambda: now[0])
    with pytest.raises(BackendError, match="ANECCompile"):
        engine.compile(scaled(2))
    with pytest.raises(BackendError, match="the compile before this failed a moment ago"):
        engine.compile(scaled(2))
    now[0] = 16.0
    assert_runs(engine.compile(scaled(2)), 2)
    engine.close()


def test_the_targets_room_for_programs_is_kept():
    strict = TARGETS["strict"]
    small = replace(strict, name="small", behaviour=replace(strict.behaviour, programs=2))
    engine = NeuralEngine(target=small)
    first = engine.compile(scaled(2))
    second = engine.compile(scaled(3))
    with pytest.raises(BudgetError, match="has used its 2 loaded programs"):
        engine.compile(scaled(4))
    first.close()
    assert_runs(engine.compile(scaled(4)), 4)
    del second  # nobody holds it any more
    last = engine.compile(scaled(5))
    assert_runs(last, 5)
    assert len(engine._entries) == 1  # and what came before it, likewise
    engine.close()


def test_a_worker_is_not_replaced_where_that_would_not_help():
    engine = NeuralEngine(compiles_each=2)
    kept = [engine.compile(scaled(by)) for by in (2, 3, 4, 5)]
    assert engine.respawns == 0
    for by, loaded in zip((2, 3, 4, 5), kept, strict=True):
        assert_runs(loaded, by)
    engine.close()


def test_a_closed_device_says_so_and_its_programs_may_still_be_closed():
    engine = NeuralEngine()
    first, second = engine.compile(scaled(2)), engine.compile(scaled(3))
    engine.close()
    engine.close()
    first.close()
    with pytest.raises(BackendError, match="device ane: is closed"):
        second.run(feed())
    with pytest.raises(BackendError, match="device ane: is closed"):
        engine.compile(scaled(4))


# What is left


def test_a_killed_asker_leaves_no_worker_and_no_files(tmp_path):
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from programs import scaled, feed;"
        "from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine;"
        "e = NeuralEngine(); p = e.compile(scaled(2)); p.run(feed());"
        "print(e.worker, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    worker, end = int(done.stdout), time.monotonic() + 20
    while time.monotonic() < end and (Path(f"/proc/{worker}").exists() or list(tmp_path.iterdir())):
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()
    assert list(tmp_path.iterdir()) == []


def test_what_two_killed_processes_left_goes_with_the_next_worker(tmp_path):
    model = tmp_path / "AB_CD"
    model.mkdir()
    folder = tmp_path / "orion-ane-worker-999999999-x"
    folder.mkdir()
    folders.claim(model, folder)
    NeuralEngine().close()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_dies_while_it_compiles_leaves_nothing(monkeypatch, tmp_path):
    """Before it could say where the framework would lay the program's files."""
    monkeypatch.setenv("STANDIN_DEVICE", "probed_engine")
    engine = NeuralEngine(target=None)
    doomed = replace(scaled(2), text=scaled(2).text.replace("}", "    // = gelu(\n}", 1))
    with pytest.raises(BackendError, match="compile: the worker ended: got SIGSEGV"):
        engine.compile(doomed)
    assert [path.name for path in tmp_path.iterdir()] == [engine.process.folder.name]
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_processes_with_the_same_program_share_its_folder_until_the_last_goes(tmp_path):
    engines = [NeuralEngine(), NeuralEngine()]
    first, second = (engine.compile(scaled(2)) for engine in engines)
    (shared,) = (p for p in tmp_path.iterdir() if p.name.endswith(folders.SUFFIX))
    os.kill(engines[0].worker, signal.SIGKILL)
    engines[0].close()
    assert_runs(second, 2)
    assert_runs(engines[1].load(scaled(3), donor=second), 3)
    second.reload(scaled(5).weights)
    assert_runs(second, 2)
    assert shared.exists()
    engines[1].close()
    assert list(tmp_path.iterdir()) == []
    first.close()


# Chains


def read(x: str, shift: str = "shift") -> dict[str, str]:
    return {"x": x, "shift": shift}


def test_a_chain_hands_values_from_program_to_program_in_one_round_trip(engine):
    programs = [engine.compile(scaled(2)), engine.compile(scaled(3))]
    fed, size = feed(), feed()["x"].nbytes
    links = [Call(0, read("x"), {"y": "once"}), Call(1, read("once"), {"y": "twice"})]
    chain = engine.chain([made.program for made in programs], links, ["twice"])
    once = answer(2, fed)
    twice = answer(3, {**fed, "x": once})
    np.testing.assert_array_equal(chain.run(programs, fed)["twice"], twice)
    trips, copied = engine.round_trips, engine.bytes_copied
    again = chain.run(programs, fed, changed=())
    assert engine.round_trips - trips == 1
    assert engine.bytes_copied - copied == 2 * size  # what comes out: the rest lies there
    np.testing.assert_array_equal(again["twice"], twice)
    os.kill(engine.worker, signal.SIGKILL)  # and what lay there goes
    np.testing.assert_array_equal(chain.run(programs, fed, changed=())["twice"], twice)
    donated = engine.load(scaled(7), donor=programs[1])
    renewed = chain.run([programs[0], donated], fed, changed=())
    np.testing.assert_array_equal(renewed["twice"], answer(7, {**fed, "x": once}))
    assert chain.run(programs, fed, links=(0, 1)) == {}


def test_a_chain_may_be_run_in_parts_which_a_new_worker_does_again(engine):
    programs, fed = [engine.compile(scaled(2)), engine.compile(scaled(3))], feed()
    links = [Call(0, read("x"), {"y": "once"}), Call(1, read("once", "late"), {"y": "twice"})]
    chain = engine.chain([made.program for made in programs], links, ["once", "twice"])
    late = feed(5)["shift"]
    twice = answer(3, {"x": answer(2, fed), "shift": late})
    for kills in (False, True):
        first = chain.run(programs, fed, links=(0, 1))
        assert first.keys() == {"once"}
        if kills:
            os.kill(engine.worker, signal.SIGKILL)
        second = chain.run(programs, {**fed, "late": late}, changed={"late"}, links=(1, 2))
        assert second.keys() == {"twice"}
        np.testing.assert_array_equal(second["twice"], twice)
    assert chain.run(programs, {**fed, "late": late}, takes=()) == {}


def test_a_chain_lays_lanes_and_scales_between_programs(shared):
    engine = shared
    programs, fed = [engine.compile(scaled(2)), engine.compile(scaled(3))], feed()
    links = [
        Call(0, read("x"), {"y": "once"}),
        Rescaled("once", "scaled", over="over", by="by"),
        Call(1, read("scaled", "kept"), {"y": "out"}),
        Lanes("once", "kept", count="count", first="first", at="at"),
    ]
    chain = engine.chain([made.program for made in programs], links, ["out"])
    kept = feed(3)["x"]
    numbers = {"over": 4.0, "by": 8.0, "count": 3, "first": 5, "at": 9}
    given = {**fed, "kept": kept.copy()}
    once = answer(2, fed)
    mean = (once.astype(np.float32) / 4 * 8).astype(np.float16)
    for _ in range(2):
        out = chain.run(programs, given, changed=(), numbers=numbers)["out"]
        np.testing.assert_array_equal(out, answer(3, {"x": mean, "shift": kept}))
        kept[..., 9:12] = once[..., 5:8]  # in the worker alone: the run after this one reads it


def test_a_value_is_moved_where_the_next_program_has_a_larger_surface_for_it(shared, monkeypatch):
    wide = TensorType(DType.FP16, (1, 16, 1, 128))
    with monkeypatch.context() as patch:
        patch.setattr("programs.OF", wide)
        whole = scaled(3)
    sides = ([replace(port, logical=OF) for port in side] for side in (whole.inputs, whole.outputs))
    inputs, outputs = map(tuple, sides)
    programs = [shared.compile(scaled(2))]
    programs += [shared.compile(replace(whole, inputs=inputs, outputs=outputs)), programs[0]]
    fed = feed()
    links = [
        Call(0, read("x"), {"y": "once"}),
        Call(1, read("once"), {"y": "twice"}),
        Call(2, read("twice"), {"y": "thrice"}),
    ]
    chain = shared.chain([made.program for made in programs], links, ["twice", "thrice"])
    twice = answer(3, {**fed, "x": answer(2, fed)})
    for _ in range(2):
        found = chain.run(programs, fed)
        np.testing.assert_array_equal(found["twice"], twice)
        np.testing.assert_array_equal(found["thrice"], answer(2, {**fed, "x": twice}))


def test_a_chain_that_is_given_up_gives_back_its_surfaces(shared):
    engine = shared
    engine._clear()  # what others have left
    made = engine.compile(scaled(2))
    links = [Call(0, read("x"), {"y": "y"})]
    chain = engine.chain([made.program], links, ["y"])
    chain.run([made], feed())
    trips = engine.round_trips
    chain.close()
    chain.close()
    assert engine.round_trips - trips == 1
    with pytest.raises(BackendError, match="chain: is closed"):
        chain.run([made], feed())
    chain = engine.chain([made.program], links, ["y"])
    chain.run([made], feed())
    del chain
    trips = engine.round_trips
    engine.chain([made.program], links, ["y"])  # the next that is asked for
    assert engine.round_trips - trips == 1
    other = NeuralEngine()
    with pytest.raises(BackendError, match="chain: a program of another device"):
        other.chain([made.program], [Call(0, read("x"), {"y": "y"})], ["y"]).run([made], feed())
    other.close()


def test_a_chain_feeds_only_what_its_programs_ports_take(shared):
    engine = shared
    made = engine.compile(scaled(2))
    chain = engine.chain([made.program], [Call(0, read("x"), {"y": "y"})], ["y"])
    with pytest.raises(BackendError, match="input shift: is not fed"):
        chain.run([made], {"x": feed()["x"]})
    with pytest.raises(BackendError, match="input x: has another type"):
        chain.run([made], {**feed(), "x": feed()["x"][:, :2]})
    made.close()
    with pytest.raises(BackendError, match="is closed"):
        chain.run([made], feed())


# Choosing it


def test_a_stand_in_says_that_it_is_none_of_apples(caplog):
    """In every report that names the device, and on standard error."""
    engine = NeuralEngine()
    engine.close()
    assert engine.name == "ane (stand-in)"
    assert engine.stand_in == os.environ["ORION_ANE_LIBRARIES"]
    assert f"{engine.stand_in} has a stand-in: nothing runs on a Neural Engine" in caplog.text


def test_auto_takes_the_engine_only_where_a_probe_has_passed(monkeypatch, tmp_path):
    monkeypatch.setenv("ORION_CACHE", str(tmp_path / "kept"))
    assert backend("auto").name == "cpu"
    file = probe_file()
    file.parent.mkdir(parents=True)
    file.write_text('{"name": "probed", "base": "strict"}')
    engine = backend("auto")
    assert (engine.name, engine.target.name) == ("ane (stand-in)", "probed")
    engine.close()
