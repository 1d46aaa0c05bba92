"""`orion probe` through a worker and the stand-in, switched to one world after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orion_ane.ane.numerics import NUMERICS as ARITHMETIC
from orion_ane.ane.targets import TARGETS, target
from orion_ane.cli.main import main
from orion_ane.probes import PROBES, Session, document, passes, probe
from orion_ane.runtime import backend
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.runtime.backends.neural_engine.machine import probe_file, probed


@pytest.fixture(autouse=True)
def here(workers, monkeypatch, tmp_path) -> None:
    """Workers find the stand-in, and probes a cache to keep their findings in."""
    monkeypatch.setenv("ORION_CACHE", str(tmp_path / "cache"))


def asked(*names: str):
    session = Session(lambda: NeuralEngine(target=None, compiles_each=10**6))
    try:
        return probe(session, [PROBES[name] for name in names])
    finally:
        session.close()


def words(findings) -> dict[str, str]:
    return {finding.probe.name: finding.verdict.word for finding in findings}


def test_a_strict_device_is_found_kept_and_taken_by_auto(monkeypatch, capsys):
    """Every probe but that of how many programs; `--device auto` then runs on it."""
    monkeypatch.setenv("STANDIN_TARGET", "strict")
    assert probed() is None
    assert main(["probe", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert Path(found["device"]["stand_in"]).is_dir()
    limits = found["target"]["limits"]
    wrong = {code for code, holds in limits.items() if holds != (code in TARGETS["strict"].limits)}
    assert wrong <= {"ANE133", "ANE134", "ANE135", "ANE136"}  # of other orders than its own
    assert found["target"]["behaviour"]["reload"] == "old"
    rows = {row["probe"]: row for row in found["probes"]}
    assert found["target"]["numerics"] == "m1"
    assert rows["reload_after_purge"]["verdict"] == "refused"  # nothing is left to load
    assert rows["dispatch"]["verdict"].startswith("no verdict")
    chosen = probe_file()
    assert target(chosen).behaviour.binding == "names"
    report = chosen.with_name(f"{chosen.stem}.report.json")
    assert json.loads(report.read_text()) == found
    monkeypatch.setenv("STANDIN_TARGET", "")
    device = backend("auto")
    assert (device.name, device.target.name) == ("ane (stand-in)", chosen.stem)
    device.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m2", "m5"])
def test_other_chips_are_found_through_a_worker_too(monkeypatch, name):
    """All else about them the emulator shows; run with `pytest -m slow tests/bridge`."""
    monkeypatch.setenv("STANDIN_TARGET", name)
    findings = asked(*(one.name for one in PROBES.values() if not one.is_slow))
    assert not any(finding.has_failed for finding in findings)
    found = document(findings)
    rules = dict(ARITHMETIC[found["numerics"]].switched(**found["arithmetic"]).rules())
    wanted = dict(TARGETS[name].arithmetic.rules())
    assert {rule: answer.value for rule, answer in rules.items()} == {
        rule: answer.value for rule, answer in wanted.items()
    }
    assert found["behaviour"]["binding"] == TARGETS[name].behaviour.binding


@pytest.mark.parametrize(
    ("switches", "found"),
    [
        ("reload=1", {"reload": "new", "reload_after_purge": "refused", "donor": "new"}),
        ("reload_after_purge=1", {"reload": "old", "reload_after_purge": "new", "donor": "new"}),
        ("reload=2", {"reload": "refused", "donor": "new"}),
        ("reload_after_purge=2", {"reload": "old", "reload_after_purge": "refused"}),
        ("donor=2", {"reload": "old", "donor": "refused"}),
        ("donor=0", {"reload": "old", "donor": "old"}),
    ],
)
def test_the_weights_that_run_after_an_update_are_found(monkeypatch, switches, found):
    monkeypatch.setenv("STANDIN_SWITCHES", switches)
    said = words(asked(*found))
    assert {name: said[name] for name in found} == found


@pytest.mark.parametrize("counted", ["loaded", "compiles"])
def test_the_number_of_programs_is_found(monkeypatch, counted):
    switches = f"programs=9,are_compiles={int(counted == 'compiles')}"
    monkeypatch.setenv("STANDIN_SWITCHES", switches)
    findings = asked("input_order", "output_order", "donor", "budget")
    assert document(findings)["behaviour"] == {
        "binding": "declared",  # op by op, nothing is bound otherwise
        "donor": "new",
        "programs": 9,
        "programs_are": counted,
    }
    assert passes(findings) == ()


def test_a_worker_that_one_probe_ends_leaves_the_others_their_answers(monkeypatch):
    monkeypatch.setenv("STANDIN_DEVICE", "probed_engine")
    findings = {finding.probe.name: finding for finding in asked("concat", "gelu", "rsqrt")}
    assert findings["gelu"].verdict.word.startswith("failed: compile: the worker ended")
    assert findings["gelu"].verdict.limits == {"ANE010": True}
    assert [findings[name].verdict.word for name in ("concat", "rsqrt")] == ["right", "right"]


def test_a_device_that_says_nothing_and_does_nothing_passes_no_more(monkeypatch, capsys):
    """Evaluations end well and write nothing: what passed before is withdrawn."""
    file = probe_file()
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    monkeypatch.setenv("STANDIN_SWITCHES", "silent=1")
    assert main(["probe", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "computes: nothing runs right" in found["reasons"]
    assert probed() is None
    assert backend("auto").name == "cpu"
