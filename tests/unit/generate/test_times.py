from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
from toys import toy_llama

import orion_ane
from orion_ane.engine.compiling import compiling
from orion_ane.generate.loop import Checker
from orion_ane.generate.session import Session

PAUSE = 0.4


@pytest.fixture
def model(tmp_path):
    with orion_ane.load(str(toy_llama(tmp_path / "toy")), device="cpu") as loaded:
        loaded.generate([1], max_tokens=2, verify=True)  # loads what there is to load
        yield loaded


def test_compiling_loops_is_no_part_of_a_prompt_s_time(model, monkeypatch):
    run = Session.append

    def slow(self, *args, **kwargs):
        with compiling():
            time.sleep(PAUSE)
        return run(self, *args, **kwargs)

    monkeypatch.setattr(Session, "append", slow)
    result = model.generate([1], max_tokens=2)
    assert result.timings.prefill_s < PAUSE
    assert result.timings.decode_s < PAUSE
    assert result.compile_s > 2 * PAUSE


def test_verifying_has_a_time_of_its_own(model, monkeypatch):
    monkeypatch.setattr("orion_ane.generate.model.Checker", Slow)
    result = model.generate([1], max_tokens=2, verify=True)
    assert result.timings.prefill_s < PAUSE
    assert result.verification.seconds > PAUSE


class Slow(Checker):
    def __init__(self, reference):
        super().__init__(SlowRuns(reference))


class SlowRuns:
    def __init__(self, runs):
        self._runs = runs

    def append(self, ids):
        time.sleep(PAUSE)
        return self._runs.append(ids)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_what_another_thread_compiles_is_no_part_of_a_generation(device, threads, tmp_path):
    path = str(toy_llama(tmp_path / "toy"))
    with orion_ane.load(path, device=device, threads=threads) as loaded:
        loaded.generate([1], max_tokens=2)
        with compiled_elsewhere():
            result = loaded.generate([1], max_tokens=3)
    assert result.timings.prefill_s > 0
    assert 0 < result.timings.decode_tokens_per_s < 1e5
    assert result.compile_s < PAUSE


def test_pieces_may_be_asked_for_by_one_thread_after_another(model, monkeypatch):
    run = Session.append

    def slow(self, *args, **kwargs):
        with compiling():
            time.sleep(PAUSE / 4)
        return run(self, *args, **kwargs)

    monkeypatch.setattr(Session, "append", slow)
    pieces = model.stream([1], max_tokens=3)
    while (piece := elsewhere(pieces)).result is None:
        pass
    assert piece.result.compile_s > 0.7 * PAUSE
    assert 0 < piece.result.timings.decode_s < PAUSE / 4


def elsewhere(pieces):
    """The next piece, asked for by a thread that nothing else was asked by."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(next, pieces).result()


@contextmanager
def compiled_elsewhere():
    begun, done = Event(), Event()

    def compile_long():
        with compiling():
            begun.set()
            done.wait()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(compile_long)
        begun.wait()
        try:
            yield
        finally:
            done.set()
            future.result()
