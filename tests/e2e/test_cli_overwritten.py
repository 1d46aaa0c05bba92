"""Files that options write: only over what the same option wrote, and over nothing that is read."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from toys import toy_llama

from orion_ane.bench import baseline
from orion_ane.bench.harness import Row, machine
from orion_ane.cli.bench import _kept
from orion_ane.cli.main import main
from orion_ane.probes import keep, report


def ran(capsys, *words, code=0):
    assert main([*map(str, words)]) == code
    return capsys.readouterr().err


@pytest.fixture
def text(tmp_path):
    (tmp_path / "tales.txt").write_text("a cat sat and a dog ran. " * 8)
    return tmp_path / "tales.txt"


@pytest.fixture
def learning(tmp_path, text):
    words = ["train", "--model", toy_llama(tmp_path / "model"), "--data", text, "--steps", 1]
    return [*words, "--batch", 1, "--seq", 8, "--device", "cpu", "--threads", 1]


ROW = Row("decode", 1.0, 1.0, 1.0, "tokens/s", 3, "elsewhere")
BENCH = ["bench", "kernels", "--runs", "1", "--save-baseline"]
PROBE = ["probe", "--device", "emulator", "--only", "gelu", "--out"]


@pytest.mark.parametrize("option", ["baseline", "probe", "report", "log", "plot", "photo"])
def test_a_file_that_an_option_did_not_write_stays(option, learning, text, tmp_path, capsys):
    mine = tmp_path / ("mine.png" if option in ("plot", "photo") else "mine.json")
    shutil.copy(text, mine)
    if option == "photo":
        mine.write_bytes(b"\x89PNG\r\n\x1a\n and somebody's own picture")
    words = {
        "baseline": [*BENCH, mine],
        "probe": [*PROBE, mine],
        "report": [*PROBE, mine],
        "log": [*learning, "--log-file", mine],
    }.get(option, [*learning, "--plot", mine])
    if option == "report":
        mine = mine.rename(tmp_path / "mine.report.json")
    before = mine.read_bytes()
    said = ran(capsys, *words, code=2)
    assert "is there already, and is no " in said
    assert f"got {mine}\n  hint: give another name, or move what is there away\n" in said
    assert mine.read_bytes() == before


@pytest.mark.parametrize("words", [BENCH, PROBE])
def test_a_folder_that_is_not_there_is_not_made_for_one_file(words, tmp_path, capsys):
    assert "no such folder" in ran(capsys, *words, tmp_path / "no" / "a.json", code=2)
    assert not (tmp_path / "no").exists()


def test_what_an_option_wrote_it_writes_again(learning, tmp_path, capsys):
    log, figure = tmp_path / "log", tmp_path / "run.png"
    for lines in (2, 4):
        ran(capsys, *learning, "--log-file", log, "--plot", figure)
        assert len(log.read_text().splitlines()) == lines
    found = tmp_path / "found.json"
    keep(report((), base="strict", device={}) | {"passed": True}, found)
    ran(capsys, *PROBE, found)
    saved = tmp_path / "saved.json"
    baseline.save(saved, [ROW], {})
    assert baseline.is_baseline(saved)


def test_what_is_read_is_not_written_to(learning, tmp_path, capsys):
    log = tmp_path / "log"
    ran(capsys, *learning, "--log-file", log)
    before = log.read_bytes()
    for option in ("--data", "--eval-data"):
        said = ran(capsys, *learning, option, log, "--log-file", log, code=2)
        assert f"--log-file: is, or holds, what this command reads: got {log}" in said
    assert log.read_bytes() == before
    world = tmp_path / "world.json"
    keep(report((), base="strict", device={}) | {"passed": True}, world)
    assert "reads" in ran(capsys, *PROBE, world, "--target", world, code=2)
    assert json.loads(world.read_text())["base"] == "strict"


def test_a_baseline_may_be_compared_with_and_then_renewed(tmp_path):
    saved = tmp_path / "saved.json"
    here = Row("decode", 1.0, 1.0, 1.0, "tokens/s", 3, machine())
    baseline.save(saved, [here], {})
    assert _kept(saved, saved).rows == (here,)


@pytest.mark.parametrize(
    ("name", "at", "other", "place"),
    [
        ("--log-file", "a.png", "--plot", "a.png"),
        ("--export", "out", "--log-file", "out/log"),
        ("--export", "out", "--plot", "out/run.png"),
        ("--export", "out", "--checkpoint-dir", "out"),
        ("--export", "out", "--checkpoint-dir", "out/kept"),
    ],
)
def test_no_place_of_a_run_is_another_s(name, at, other, place, learning, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    said = ran(capsys, *learning, name, tmp_path / at, other, tmp_path / place, code=2)
    assert f"{other}: is where {name} goes, or within it" in said
    assert not (tmp_path / place).is_file()
    assert not any((tmp_path / "out").iterdir())


def test_a_place_that_is_left_again_on_the_way_to_what_is_read_holds_none_of_it(
    learning, text, tmp_path, capsys
):
    (tmp_path / "out").mkdir()
    learning[learning.index(text)] = tmp_path / "out" / ".." / text.name
    assert "written to" in ran(capsys, *learning, "--export", tmp_path / "out")


def test_the_folder_that_one_works_in_is_not_replaced(learning, tmp_path, capsys, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    said = ran(capsys, *learning, "--export", ".", code=2)
    assert "is the working folder, or holds it" in said
    assert "step" not in said


def test_a_log_whose_last_line_was_cut_is_gone_on_with_on_a_new_one(learning, tmp_path, capsys):
    log = tmp_path / "log"
    ran(capsys, *learning, "--log-file", log)
    log.write_bytes(log.read_bytes()[:-9])
    ran(capsys, *learning, "--log-file", log)
    lines = log.read_text().splitlines()
    assert len(lines) == 4
    assert all(json.loads(line) for line in (lines[0], *lines[2:]))


def test_what_learnt_nothing_takes_no_good_model_s_place(learning, tmp_path, capsys):
    words = [*learning, "--export", tmp_path / "out"]
    ran(capsys, *words)
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    model = tmp_path / "model" / "model.safetensors"
    tensors = load_file(model)
    tensors["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], np.nan)
    save_file(tensors, model, metadata={"format": "pt"})
    said = ran(capsys, *words, "--replace", code=1)
    assert f"nothing was learnt, so nothing is written to {tmp_path / 'out'}" in said
    assert "written to" not in said.replace("is written to", "")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
