"""Several processes that train one model."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from toys import toy_llama

from orion_ane.errors import BackendError, ConfigError
from orion_ane.train.checkpoint import Checkpoints
from orion_ane.train.gradients import Gradients
from orion_ane.train.peers import Group, place

TALE = "The cat sat on the mat.\n<|endoftext|>\nA dog ran to the sea, and back.\n<|endoftext|>\n"


@pytest.fixture
def words(tmp_path):
    (tmp_path / "tales.txt").write_text(TALE * 20)
    model = toy_llama(tmp_path / "model")

    def words(*more, steps=4, folder="run", device="cpu", patience=60):
        given = ["--model", model, "--data", tmp_path / "tales.txt", "--steps", steps]
        given += ["--seq", 16, "--lr", 0.01, "--device", device, "--threads", 1, "--json"]
        given += ["--checkpoint-dir", tmp_path / folder, "--peer-timeout", patience, *more]
        return [sys.executable, "-m", "orion_ane", "train", *map(str, given)]

    return words


def started(command, size=1):
    """The processes of a run, as a launcher starts them."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    made = []
    for rank in range(size):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if size > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        made.append(subprocess.Popen(command, env=environment, **pipes))
    return made


def ended(processes, codes=(0,)):
    """What each printed and said."""
    found = [process.communicate(timeout=100) for process in processes]
    assert {process.returncode for process in processes} <= set(codes), found
    return found


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def masters(path):
    return Checkpoints(path).newest().state.masters


def test_two_processes_with_half_the_rows_are_one_with_all_of_them(words, tmp_path):
    """Two rows are added in one way alone, so that their run is equal bit for bit."""
    tale = ["--eval-data", str(tmp_path / "tales.txt"), "--save-every", "2"]
    ((alone, _),) = ended(started(words("--batch", 2, *tale)))
    (first, _), (second, said) = ended(started(words("--batch", 1, *tale, folder="two"), 2))
    assert (second, said) == ("", "")
    *steps, summary = lines(alone)
    *both, end = lines(first)
    for name in ("loss", "grad_norm", "tokens_seen", "lr"):
        assert [line[name] for line in both] == [line[name] for line in steps]
    assert end["eval_loss"] == pytest.approx(summary["eval_loss"], rel=1e-12)
    want, got = masters(tmp_path / "run"), masters(tmp_path / "two")
    assert all(np.array_equal(got[name], array) for name, array in want.items())
    # What two have begun, one finishes: the place in the data is that of all.
    (tmp_path / "two" / "step-00000004" / "checkpoint.json").unlink()
    ((rest, _),) = ended(started(words("--batch", 2, *tale, "--resume", folder="two")))
    assert [line["loss"] for line in lines(rest)[:-1]] == [line["loss"] for line in steps[2:]]


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 1])
def test_a_dead_peer_ends_the_run_with_a_message_and_a_good_checkpoint(dies, words, tmp_path):
    both = started(words("--batch", 1, "--save-every", 1, steps=100000), 2)
    for step in (1, 2, 3):
        assert json.loads(both[0].stdout.readline())["step"] == step
    both[dies].send_signal(signal.SIGKILL)
    (_, said) = both[1 - dies].communicate(timeout=100)
    assert both[1 - dies].returncode == 2
    both[dies].communicate()
    assert "another process of this run has ended or does not answer" in said
    assert "--resume" in said
    assert "Traceback" not in said
    saved = Checkpoints(tmp_path / "run").newest()
    assert saved.state.step >= 2 + dies  # a step is printed, then saved


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [0, 1])
def test_a_peer_that_hangs_ends_the_run_with_a_message_and_a_good_checkpoint(
    hangs, words, tmp_path
):
    """It has not ended: its connections are open, and nothing comes."""
    both = started(words("--batch", 1, "--save-every", 1, steps=100000, patience=12), 2)
    try:
        for step in (1, 2, 3):
            assert json.loads(both[0].stdout.readline())["step"] == step
        both[hangs].send_signal(signal.SIGSTOP)
        (_, said) = both[1 - hangs].communicate(timeout=100)
    finally:
        both[hangs].kill()
    both[hangs].communicate()
    assert both[1 - hangs].returncode == 2
    assert "another process of this run has ended or does not answer" in said
    assert "--peer-timeout" in said
    assert "Traceback" not in said
    assert Checkpoints(tmp_path / "run").newest().state.step >= 2 + hangs


@pytest.mark.slow
def test_two_processes_on_the_emulator_are_one(words, tmp_path):
    """Their layers are in fp16, each stage with a scale that all have agreed on."""
    ((alone, _),) = ended(started(words("--batch", 2, steps=2, device="emulator")))
    (first, _), _ = ended(started(words("--batch", 1, steps=2, device="emulator", folder="two"), 2))
    *steps, _ = lines(alone)
    *both, _ = lines(first)
    for name in ("loss", "grad_norm"):
        want = [line[name] for line in steps]
        assert [line[name] for line in both] == pytest.approx(want, rel=1e-4)
    assert [line["skipped"] for line in both] == [0, 0]
    assert all(set(line["loss_scales"]) == set(steps[0]["loss_scales"]) for line in both)
    saved = Checkpoints(tmp_path / "two").newest().state
    for name, want in masters(tmp_path / "run").items():
        np.testing.assert_allclose(saved.masters[name], want, atol=2e-2)  # steps of 0.01 each


@pytest.mark.slow
def test_an_interrupt_of_one_ends_all_after_the_same_step_C09(words, tmp_path):
    both = started(words("--batch", 1, steps=100000), 2)
    first = [both[0].stdout.readline() for _ in range(2)]
    both[1].send_signal(signal.SIGINT)
    (rest, _), _ = ended(both, codes=(130,))
    *_, last, summary = lines("".join(first) + rest)
    assert summary["ended"] == "interrupted"
    assert Checkpoints(tmp_path / "run").newest().state.step == last["step"]


@pytest.mark.slow
def test_processes_of_different_runs_refuse_each_other(words, tmp_path):
    (tmp_path / "other.txt").write_text("something else " * 100)
    first = words("--batch", 1)
    second = [str(tmp_path / "other.txt") if w.endswith("tales.txt") else w for w in first]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    base = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    both = [
        subprocess.Popen(command, env={**base, "RANK": str(i)}, stderr=subprocess.PIPE, text=True)
        for i, command in enumerate((first, second))
    ]
    for _, said in ended(both, codes=(2,)):
        assert "data: not the same everywhere" in said


def test_what_differs_between_processes_is_named_by_its_option(monkeypatch):
    own = {"data": "abc", "settings": {"clip": 1.0, "schedule": {"lr": 0.1, "steps": 9}}}
    others = {"data": "abc", "settings": {"clip": None, "schedule": {"lr": 0.2, "steps": 9}}}
    monkeypatch.setattr(Group, "_gathered", lambda _, what: [what, own, others])
    with pytest.raises(ConfigError) as refused:
        Group.__new__(Group).want_same(own)
    got, want = "--clip 0, --lr 0.2 in process 2", "--clip 1.0, --lr 0.1"
    assert f"settings: not the same everywhere: got {got}, want {want}\n" in str(refused.value)
    with pytest.raises(ConfigError, match=r"data: not the same .*: got abc in process 1, want x"):
        Group.__new__(Group).want_same({**own, "data": "x"})


def test_who_a_process_is(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert place() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert place() == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert place() == (2, 4)
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(ConfigError, match="no such process: got 4 of 4"):
        place()


def test_what_is_not_finite_in_one_process_is_so_in_all():
    """What each hears is the same, so that each skips the step, for the same reason."""
    said = {"loss": 3.0, "tokens": 8, "bad": None, "back": None, "wish": None, "state": [1, "a"]}
    group, found = object.__new__(Group), Gradients({})
    bad = {"loss": math.nan, "bad": "layers.1 hidden", "back": "layers.1", "largest": {"head": 2.0}}
    group._hear(found, [{**said, "largest": {"head": 1.0}}, {**said, **bad, "wish": "time"}])
    assert math.isnan(found.loss)
    assert found.tokens == 16
    assert (found.bad, found.bad_back) == ("layers.1 hidden, process 1", "layers.1")
    assert found.largest == {"head": 2.0}
    assert group.agreed() == "time"
    with pytest.raises(BackendError, match="process 1: has learnt something else"):
        group._hear(found, [{**said, "largest": {}}, {**said, "largest": {}, "state": [1, "b"]}])
