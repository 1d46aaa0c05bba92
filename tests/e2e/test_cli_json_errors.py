"""With --json an error is a document on standard output, beside its message on the other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from orion_ane.cli import compile as compiling
from orion_ane.cli.commands import orion as command
from orion_ane.cli.main import main
from orion_ane.errors import Diagnostic, LimitError

KEYS = {"kind", "where", "what", "got", "want", "hint"}
MISS = ["generate", "--device", "cpu", "--prompt", "a", "--model", "no such model"]


def ran(capsys, *words):
    """The exit code, what stands on standard output, and on the other."""
    code = main([*map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (MISS, {"kind": "ConfigError", "where": "no such model", "what": "no such file or folder"}),
        (
            ["generate", "--prompt", "a", "--max-tokens", "-3"],
            {"kind": "ConfigError", "where": "--max-tokens", "got": "-3"},
        ),
        (
            ["check", "no-file.mil"],
            {"kind": "UsageError", "where": "orion check", "hint": "orion check --help"},
        ),
        (
            ["lora", "train", "--no-such-option"],
            {"kind": "UsageError", "where": "orion lora train", "hint": "orion lora train --help"},
        ),
    ],
)
def test_an_error_is_a_document_where_one_was_asked_for(words, want, capsys):
    code, out, err = ran(capsys, *words, "--json")
    found = json.loads(out)["error"]
    assert (code, out.count("\n")) == (2, 1)
    assert want.items() <= found.items()
    assert found.keys() == KEYS
    assert f"orion: {found['where']}: {found['what']}" in err or found["kind"] == "UsageError"
    assert found["what"] in err


def test_without_json_standard_output_has_no_error(capsys):
    assert ran(capsys, *MISS)[:2] == (2, "")


@pytest.mark.parametrize("words", [["--prompt", "--json"], ["--prompt", "a", "--stop", "--json"]])
def test_the_word_as_another_options_value_asks_for_nothing(words, capsys):
    assert ran(capsys, *MISS, *words)[:2] == (2, "")


def test_a_config_may_ask_for_json(tmp_path, capsys):
    (tmp_path / "c.yml").write_text("json: true")
    _, out, _ = ran(capsys, *MISS, "--config", tmp_path / "c.yml")
    assert json.loads(out)["error"]["where"] == "no such model"


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_processes_the_first_alone_prints_an_error(rank, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("orion_ane.cli.train.place", lambda: (rank, 2))
    words = ["--model", "no such model", "--data", tmp_path / "a", "--steps", "1", "--json"]
    code, out, err = ran(capsys, "train", *words, "--device", "cpu")
    assert (code, out == "") == (2, bool(rank))
    assert "no such model" in err


def test_every_broken_limit_is_listed(tmp_path, capsys, monkeypatch):
    one = Diagnostic("ANE010", "rejected", "y", 2, 5, "gelu", "", ("paper, limit 10",))

    def refuse(*_):
        raise LimitError("m1", (one, one))

    monkeypatch.setattr(compiling, "compiled_text", refuse)
    (tmp_path / "a.mil").write_text("")
    words = ["compile", tmp_path / "a.mil", "--out", tmp_path / "out", "--json"]
    found = json.loads(ran(capsys, *words)[1])["error"]
    assert (found["kind"], found["what"]) == ("LimitError", "2 limits are broken")
    assert [each["code"] for each in found["violations"]] == ["ANE010", "ANE010"]


def test_what_the_system_refuses_is_one_too(capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "/a/file")

    monkeypatch.setattr("orion_ane.cli.generate.load", full)
    code, out, _ = ran(capsys, "generate", "--prompt", "a", "--json")
    want = {"kind": "OSError", "where": "/a/file", "got": "No space left on device"}
    assert want.items() <= json.loads(out)["error"].items()
    assert code == 2


def test_where_standard_output_has_no_room_the_message_is_all():
    script = "import sys; from orion_ane.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with open("/dev/full", "w") as full:  # noqa: PTH123 (a device)
        done = subprocess.run(
            [sys.executable, "-c", script, *MISS, "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") <= 2
    assert "Traceback" not in done.stderr


def test_every_command_that_takes_json_says_so_to_errors():
    def leaves(group):
        for one in group.commands.values():
            yield from leaves(one) if hasattr(one, "commands") else [one]

    found = [p for one in leaves(command) for p in one.params if p.name == "as_json"]
    assert len(found) > 15
    assert all(p.is_eager and p.callback is not None for p in found)
