"""`orion probe` on the emulator: what it writes, withdraws and refuses."""

from __future__ import annotations

import json

import pytest

from orion_ane.ane.check import check
from orion_ane.ane.targets import target
from orion_ane.cli.main import main
from orion_ane.cli.probe import base_of
from orion_ane.probes.computes import simple

ESSENTIAL = ("input_order", "output_order", "donor")
WORLD = {"base": "m5", "behaviour": {"reload": "refused"}, "arithmetic": {"overflow": "final"}}


def arguments(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


@pytest.fixture
def world(tmp_path) -> str:
    file = tmp_path / "world.json"
    file.write_text(json.dumps(WORLD))
    return str(file)


def test_the_target_that_is_written_is_one_that_everything_else_reads(world, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    out = tmp_path / "kept" / "found.json"
    asked = ["probe", "--device", "emulator", "--target", world, "--out", str(out)]
    assert main([*asked, *arguments(*ESSENTIAL, "reload", "overflow")]) == 0
    assert "reload: refused\n" in capsys.readouterr().out
    found = target(out)
    assert (found.name, found.behaviour.binding) == ("found", "names@output")
    assert (found.behaviour.reload, dict(found.switches)) == ("refused", {"overflow": "final"})
    assert check(simple(found.dialect), found) == ()
    assert sorted(file.name for file in out.parent.iterdir()) == ["found.json", "found.report.json"]


def test_json_is_one_document_with_a_row_a_probe(world, capsys):
    assert (
        main(["probe", "--device", "emulator", "--target", world, "--json", "--only", "log"]) == 2
    )
    capsys.readouterr()
    asked = ["probe", "--device", "emulator", "--target", world, "--json", "--only", "gelu"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["probe"] for row in found["probes"]] == ["computes", "gelu"]
    assert all({"probe", "verdict", "evidence"} <= set(row) for row in found["probes"])
    assert not found["passed"]


def test_where_a_mac_is_needed_the_page_about_it_is_named(monkeypatch, capsys):
    monkeypatch.delenv("ORION_ANE_LIBRARIES", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["probe"]) == 2
    assert "docs/mac.md" in capsys.readouterr().err


def test_what_did_not_pass_is_reported_and_no_target(tmp_path, capsys):
    out = tmp_path / "found.json"
    asked = ["probe", "--device", "emulator", "--out", str(out), "--only", "gelu"]
    assert main(asked) == 0
    assert not out.exists()
    report = json.loads((tmp_path / "found.report.json").read_text())
    assert "input_order: not asked" in report["reasons"]
    said = capsys.readouterr().err
    assert "input_order: not asked" in said
    assert f"not passed: no target is written to {out}\n" in said


def test_an_engine_takes_no_target(capsys):
    assert main(["probe", "--target", "m1"]) == 2
    assert "--target" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chip", "base"),
    [("Apple M4 Max", "m4"), ("Apple M1", "m1"), ("Apple M9", "strict"), ("", "strict")],
)
def test_what_nobody_asks_is_answered_by_the_chips_own_target(chip, base):
    assert base_of(chip) == base
