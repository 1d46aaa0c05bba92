from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import killed_saves
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from killed_saves import CONFIG, run_at

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.lora.config import AdapterConfig
from orion_ane.models.config import LlamaConfig
from orion_ane.train import checkpoint
from orion_ane.train.checkpoint import DOCUMENT, TENSORS, Checkpoints, load
from orion_ane.train.tensor_file import write_tensors

ADAPTER = AdapterConfig(8, 16.0, "all-linear", base="m")


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    run = run_at(5)
    run.state.updates, run.state.skipped, run.state.tokens_seen = 4, 1, 10**12
    run.state.loss_scale, run.state.scales = 2.0**-30, {"layers.0": 0.5, "layers.1": 64.0}
    run.state.masters["w"][0] = [np.nan, -0.0, 1e-45]
    Checkpoints(tmp_path).save(run)
    found = Checkpoints(tmp_path).newest()
    for mine, theirs in (
        (run.state.masters["w"], found.state.masters["w"]),
        (run.state.moments["w"].mean, found.state.moments["w"].mean),
        (run.state.moments["w"].square, found.state.moments["w"].square),
    ):
        assert mine.tobytes() == theirs.tobytes()
        theirs[...] = 1  # it is the run's own
    counts = ("step", "updates", "skipped", "tokens_seen", "loss_scale")
    assert [getattr(found.state, c) for c in counts] == [5, 4, 1, 10**12, 2.0**-30]
    assert found.state.scales == run.state.scales
    assert (found.cursor, found.rng) == (run.cursor, run.rng)
    assert found.code
    found.want("this run", CONFIG, {})


def test_a_save_that_is_killed_or_has_no_room_leaves_the_last_good_one_C01(tmp_path):
    """At every action on files, and with a disk that ends at any of many bytes."""
    done = subprocess.run(
        [sys.executable, killed_saves.__file__, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert found["broken"] == []
    assert found["killed"].count(-9) >= 20
    assert found["killed"][-1] == 0
    assert found["full"][0] == 1
    assert found["full"].count(1) >= 5
    assert found["full"][-1] == 0
    assert set(found["full"]) == {0, 1}


def test_a_full_disk_says_so(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = Checkpoints(tmp_path)
    kept.save(run_at(1))
    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(CheckpointError, match=r"step-00000002: cannot be written \(No space left"):
        kept.save(run_at(2))
    assert kept.newest().state.step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_only_the_newest_few_stay(tmp_path):
    kept = Checkpoints(tmp_path, keep=2)
    for step in (5, 10, 15, 17):
        kept.save(run_at(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000015", "step-00000017"]
    assert len(kept) == 2
    with pytest.raises(ConfigError, match="none would be kept"):
        Checkpoints(tmp_path, keep=0)


def test_a_damaged_one_is_passed_over_with_a_note(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(run_at(1))
    damaged = kept.save(run_at(2)) / TENSORS
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    assert kept.newest().state.step == 1
    assert kept.notes == [f"passed over: {damaged}: damaged: not the bytes that were written"]
    kept.save(run_at(2))  # what cannot be read makes room
    assert kept.newest().state.step == 2
    with pytest.raises(CheckpointError, match="is there already"):
        kept.save(run_at(2))


def test_where_none_is_good_the_newest_says_why(tmp_path):
    kept = Checkpoints(tmp_path)
    assert kept.newest() is None
    assert Checkpoints(tmp_path / "nowhere").newest() is None
    for step in (1, 2):
        (kept.save(run_at(step)) / TENSORS).unlink()
    with pytest.raises(CheckpointError, match=r"step-00000002/state.safetensors: cannot be read"):
        kept.newest()


@given(data=st.data())
def test_damage_anywhere_is_noticed(tmp_path_factory, data):
    path = Checkpoints(tmp_path_factory.mktemp("run")).save(run_at(1))
    file = path / data.draw(st.sampled_from([TENSORS, DOCUMENT]))
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=str(file)):
        load(path)


def rewritten(path: Path, **changed: object) -> Path:
    """A document with other values, and a digest that fits."""
    text = (path / DOCUMENT).read_bytes().partition(b"\n")[2]
    document = {**json.loads(text), **changed}
    text = json.dumps(document).encode()
    line = checkpoint.hashlib.sha256(text).hexdigest().encode()
    (path / DOCUMENT).write_bytes(line + b"\n" + text)
    return path


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"version": 3, "code": "9.1"},
            r"another version.*got 3, want 1 or 2\n.*orion-ane 9.1",
        ),
        ({"format": "other"}, "another format: got other, want orion-training"),
        ({"step": "5"}, "no such step: got str, want int"),
        ({"step": True}, "no such step: got bool, want int"),
        ({"cursor": None}, "no such cursor: got NoneType, want dict"),
        ({"files": {}}, "no such state.safetensors"),
        ({"scales": {"layers.0": 2}}, "no such layers.0: got int, want float"),
    ],
)
def test_another_version_or_format_is_refused_with_its_reason_C11(changed, message, tmp_path):
    path = rewritten(Checkpoints(tmp_path).save(run_at(1)), **changed)
    with pytest.raises(CheckpointError, match=f"(?s){message}"):
        load(path)


def test_an_older_format_is_read_with_a_note_C11(tmp_path):
    kept = Checkpoints(tmp_path)
    path = rewritten(kept.save(run_at(1)), version=1, scales=None)
    assert kept.newest().state.scales == {}
    assert kept.notes == [f"{path}: of an older format: the scales of gradients are chosen anew"]


def test_a_file_of_something_else_is_refused_C11(tmp_path):
    path = Checkpoints(tmp_path).save(run_at(1))
    (path / DOCUMENT).write_bytes(b"BLZT1234" + bytes(100))
    with pytest.raises(CheckpointError, match="not a checkpoint of training"):
        load(path)


def test_another_model_or_other_settings_are_named(tmp_path):
    run = run_at(1)
    saved = load(Checkpoints(tmp_path).save(checkpoint.Run(CONFIG, run.state, {"lr": 0.1})))
    wider = LlamaConfig(**{**sizes(), "dim": 8, "rope": checkpoint_rope()})
    with pytest.raises(ConfigError) as caught:
        saved.want("this run", wider, {"lr": 0.1})
    words = "this run has another model: got dim 8, rope.theta 500.0, want dim 4, rope.theta 10000"
    assert words in str(caught.value)
    with pytest.raises(ConfigError, match=r"lr 0\.2: the run in .* began with lr 0\.1\n"):
        saved.want("this run", CONFIG, {"lr": 0.2})


@pytest.mark.parametrize(
    ("began", "asked", "words"),
    [
        ({"clip": 1.0}, {"clip": None}, "--clip 0: the run in {} began with --clip 1.0\n"),
        (
            {"learns": "an adapter"},
            {},
            "learns the whole model: the run in {} began with learns an",
        ),
        (
            {"learns": asdict(ADAPTER)},
            {},
            "learns the whole model: the run in {} began with learns an adapter of rank 8\n",
        ),
        (
            {"learns": asdict(ADAPTER)},
            {"learns": asdict(AdapterConfig(4, 16.0, ("q_proj", "v_proj"), base="m"))},
            "--rank 4, --targets q_proj,v_proj: the run in {} began with --rank 8, --targets all",
        ),
        (  # as earlier checkpoints have it
            {"learns": repr(ADAPTER)},
            {"learns": asdict(replace(ADAPTER, rank_stabilised=True))},
            "--rslora True: the run in {} began with --rslora False\n",
        ),
        (
            {"schedule": {"shape": "constant", "lr": 0.1}},
            {"schedule": {"shape": "cosine", "lr": 0.2, "steps": 9}},
            "--schedule cosine, --lr 0.2: the run in {} began with --schedule constant, --lr 0.1\n",
        ),
    ],
)
def test_other_settings_are_named_as_options(began, asked, words, tmp_path):
    saved = load(Checkpoints(tmp_path).save(checkpoint.Run(CONFIG, run_at(1).state, began)))
    with pytest.raises(ConfigError) as caught:
        saved.want("this run", CONFIG, asked)
    assert words.format(tmp_path) in str(caught.value)
    assert "only a run" not in str(caught.value)


def sizes():
    names = ("vocab", "context", "dim", "layers", "heads", "kv_heads", "head_dim", "hidden")
    return {name: getattr(CONFIG, name) for name in names} | {"tied": True}


def checkpoint_rope():
    return type(CONFIG.rope)(theta=500.0)


def test_an_adapter_that_was_kept_as_python_prints_it_goes_on(tmp_path):
    run = checkpoint.Run(CONFIG, run_at(1).state, {"learns": repr(ADAPTER)})
    load(Checkpoints(tmp_path).save(run)).want("this run", CONFIG, {"learns": asdict(ADAPTER)})


def test_others_can_read_the_tensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is an oracle")
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.ones((), np.float32)}
    write_tensors(tmp_path / "x.safetensors", arrays)
    found = safetensors.load_file(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
