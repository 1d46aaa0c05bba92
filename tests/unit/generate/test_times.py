from __future__ import annotations

import time

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
