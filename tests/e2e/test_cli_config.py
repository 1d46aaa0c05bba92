"""`--config FILE`, of every command."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from toys import toy_llama

from orion_ane.cli.commands import orion
from orion_ane.cli.main import main

SMALL = {"seq": 16, "batch": 2, "device": "cpu", "threads": 1, "steps": 3}


@pytest.fixture
def written(tmp_path):
    (tmp_path / "a.txt").write_text("The cat sat on the mat.\n" * 40)
    (tmp_path / "b.txt").write_text("A dog ran to the sea.\n" * 40)
    model = toy_llama(tmp_path / "model")

    def write(**options):
        lines = {"model": str(model), "data": [str(tmp_path / "a.txt")], **SMALL, **options}
        file = tmp_path / "run.yaml"
        file.write_text("".join(f"{name}: {json.dumps(v)}\n" for name, v in lines.items()))
        return str(file)

    return write


def run(capsys, *words, code=0):
    assert main(["train", "--json", *words]) == code
    captured = capsys.readouterr()
    return [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_a_file_says_what_words_would_and_words_win(written, tmp_path, capsys):
    file = written(grad_accum=2, lr=0.25, schedule="constant")
    lines, _ = run(capsys, "--config", file)
    assert (lines[0]["lr"], lines[0]["tokens_seen"]) == (0.25, 2 * 2 * 16)
    assert lines[-1]["step"] == 3
    again, _ = run(capsys, "--steps", "2", "--config", file, "--lr", "0.5")
    assert (again[0]["lr"], again[-1]["step"]) == (0.5, 2)
    both, _ = run(capsys, "--config", file, "--data", str(tmp_path / "b.txt"))
    assert both[0]["loss"] != lines[0]["loss"]


def test_values_are_read_as_if_typed(written, tmp_path, capsys):
    file = Path(written())
    (tmp_path / "run").mkdir()
    more = f"lr: 5e-4\ncheckpoint-dir: {tmp_path}/run\nresume: yes\nschedule: constant\n"
    file.write_text(file.read_text() + more)
    lines, said = run(capsys, "--config", str(file))
    assert lines[0]["lr"] == 5e-4
    assert "starts anew" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz: 3", "line 1: no such option: got stepz, want model, device"),
        ("steps: 3\nsteps: 4", "line 2: steps stands twice"),
        ("steps:", "line 1: steps: no value"),
        ("steps: [1, 2]", "steps: a list: want one value"),
        ("steps: {a: 1}", "steps: no value"),
        ("steps: three", "'three' is not a valid integer"),
        ("steps: 3\nschedule: square", "'square' is not one of"),
        ("- 1", "not a table of options"),
        ("a: [", "not YAML"),
        ("config: other.yaml", "no such option: got config"),
        ("x: !!python/object/apply:os.system [exit]", "no such option: got x"),
    ],
)
def test_what_a_file_cannot_say_is_one_message(text, message, tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    _, said = run(capsys, "--config", str(file), "--data", "x", code=2)
    assert message in said
    assert said.count("orion: ") == 1
    _, said = run(capsys, "--config", str(tmp_path / "none.yaml"), code=2)
    assert "none.yaml: cannot be read" in said


def commands_of(command):
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from commands_of(below)
    else:
        yield command


def test_every_command_takes_one():
    for command in commands_of(orion):
        words = [word for option in command.params for word in option.opts]
        assert words.count("--config") == 1, command.name


def test_other_commands_read_theirs_too(tmp_path, capsys):
    file = tmp_path / "rules.yaml"
    file.write_text("json: true\ntarget: m1\n")
    assert main(["rules", "--config", str(file)]) == 0
    held = capsys.readouterr().out
    assert json.loads(held)
    assert main(["rules", "--config", str(file), "--target", "paper"]) == 0
    assert capsys.readouterr().out != held
    file.write_text("no-stream: true\n")
    assert main(["generate", "--config", str(file)]) == 2
    assert "no such option: got no-stream" in capsys.readouterr().err
