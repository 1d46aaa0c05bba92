"""Files that options write: only over what the same option wrote, and over nothing that is read."""

from __future__ import annotations

import json
import shutil

import pytest
from toys import toy_llama

from orion_ane.bench import baseline
from orion_ane.bench.harness import Row
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
    saved, world = tmp_path / "saved.json", tmp_path / "world.json"
    baseline.save(saved, [ROW], {})
    assert "reads" in ran(capsys, *BENCH, saved, "--baseline", saved, code=2)
    keep(report((), base="strict", device={}) | {"passed": True}, world)
    assert "reads" in ran(capsys, *PROBE, world, "--target", world, code=2)
    assert json.loads(world.read_text())["base"] == "strict"
