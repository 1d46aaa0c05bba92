"""`orion doctor`: whatever decides about the engine's use, one world after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import emulated_engine
import pytest

from orion_ane.cli.main import main
from orion_ane.runtime import backend
from orion_ane.runtime.backends.neural_engine import doctor
from orion_ane.runtime.backends.neural_engine.doctor import Finding, examine
from orion_ane.runtime.backends.neural_engine.libraries import libraries
from orion_ane.runtime.backends.neural_engine.machine import machine, probe_file, probed
from orion_ane.runtime.backends.neural_engine.signatures import FOUNDATION, MACHINE, REQUIRED

SIGNED = "Executable=/x/python3\nflags=0x10000(runtime)\n"
GOOD = {
    ("sw_vers", "-productVersion"): "27.0\n",
    ("sw_vers", "-buildVersion"): "26A5378j\n",
    ("sysctl", "-n", "machdep.cpu.brand_string"): "Apple M2\n",
    ("sysctl", "-n", "sysctl.proc_translated"): "0\n",
    ("csrutil", "status"): "System Integrity Protection status: enabled.\n",
}


@pytest.fixture(autouse=True)
def here(workers, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("ORION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STANDIN_DEVICE")


def said(**answers: str):
    """A Mac whose commands print what a good one's do, save some."""
    known = {" ".join(command): text for command, text in GOOD.items()}

    def run(*command: str) -> str:
        name = "codesign" if command[0] == "codesign" else " ".join(command)
        changed = [text for key, text in answers.items() if key in name]
        return changed[0] if changed else known.get(name, "")

    return run


@pytest.fixture
def mac(monkeypatch):
    """Examines a Mac: the stand-in's libraries, taken for Apple's, and what its commands print."""

    def examined(espresso: str = "/none.dylib", environment=None, **answers: str):
        found = machine(said(**answers), environment or {})
        arm = found.python.replace(os.uname().machine, "arm64")
        found = found if "x86_64" in answers else replace(found, python=arm)
        monkeypatch.setattr(doctor, "libraries", lambda: replace(libraries(), stand_in=None))
        monkeypatch.setattr(doctor, "machine", lambda: found)
        monkeypatch.setattr(doctor, "ESPRESSO", espresso)
        return {finding.what: finding for finding in examine()}

    return examined


def bad(findings: dict[str, Finding]) -> set[str]:
    return {name for name, finding in findings.items() if finding.state == "bad"}


def test_a_good_mac_is_found_to_be_one_thing_after_another(mac):
    found = mac()
    assert bad(found) == set()
    assert (found["macOS"].found, found["chip"].found) == ("27.0 (26A5378j)", "Apple M2")
    assert "enabled" in found["integrity protection"].found
    for method in (*REQUIRED, *FOUNDATION, *MACHINE):
        assert found[str(method)].state == "good", method
    assert "no such library" in found["e5rt functions"].found
    assert found["probe"].state == "note"
    probe_file().parent.mkdir(parents=True)
    probe_file().write_text("{}")
    assert mac()["probe"].found == f"passed: {probe_file()}"


@pytest.mark.parametrize(
    ("answers", "what", "advice"),
    [
        ({"proc_translated": "1\n"}, "python", "take a Python for arm64"),
        ({"x86_64": ""}, "python", "take a Python for arm64"),
        ({"codesign": "com.apple.ane.iokit-user-access"}, "entitlements", "as it is distributed"),
        ({"codesign": "com.apple.security.app-sandbox"}, "sandbox", "run it outside"),
    ],
)
def test_what_keeps_the_engine_from_use_is_said_with_the_way_out(mac, answers, what, advice):
    found = mac(**answers)
    assert bad(found) == {what}
    assert advice in found[what].advice


def test_a_sandbox_is_known_by_its_container_too(mac):
    assert bad(mac(environment={"APP_SANDBOX_CONTAINER_ID": "x"})) == {"sandbox"}


def test_a_hardened_python_is_told_what_it_loses_and_nothing_that_weakens_it(mac):
    found = mac(codesign=SIGNED)
    assert bad(found) == set()
    assert found["hardened runtime"].state == "note"
    assert "hardened runtime" not in mac(codesign=SIGNED + "com.apple.security.cs.allow-jit")
    words = " ".join(finding.advice for finding in found.values())
    assert "disable" not in words
    assert "leave it on" in words


def test_a_system_that_was_never_recorded_is_noted(mac):
    found = mac(productVersion="31.0\n")["macOS"]
    assert (found.state, "recorded on" in found.advice) == ("note", True)


def test_a_virtual_machine_reaches_no_engine(mac):
    mac()  # which loads the libraries
    emulated_engine.switch(is_virtual=1)
    found = mac()
    emulated_engine.switch(is_virtual=0)
    assert bad(found) == {"+[_ANEDeviceInfo isVirtualMachine]"}
    assert "use the emulator" in found["+[_ANEDeviceInfo isVirtualMachine]"].advice


def test_functions_of_the_other_way_are_counted_and_never_called(mac, tmp_path):
    source, library = tmp_path / "e.c", tmp_path / "e.so"
    names = doctor.OTHER_WAY[:3]
    source.write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names))
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    assert mac(espresso=str(library))["e5rt functions"].found == "3 of 4 are there"


def test_a_probe_counts_for_the_build_of_the_system_that_it_was_asked_on(monkeypatch):
    build = ["26A5378j"]
    monkeypatch.delenv("ORION_ANE_LIBRARIES")
    monkeypatch.setattr("orion_ane.runtime.backends.neural_engine.machine.sys.platform", "darwin")
    monkeypatch.setattr(
        "orion_ane.runtime.backends.neural_engine.machine.ask", lambda *_: f"{build[0]}\n"
    )
    file = probe_file()
    assert file.name.startswith("26A5378j-")
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert probed() == file
    build[0] = "26A434"
    assert probed() is None
    assert backend("auto").name == "cpu"


# The command


def test_a_stand_in_is_called_one_and_the_exit_status_is_0(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    rows = {row["what"]: row for row in found["findings"]}
    assert rows["libraries"]["found"] == f"a stand-in in {os.environ['ORION_ANE_LIBRARIES']}"
    assert all({"what", "state", "found", "advice"} == set(row) for row in found["findings"])
    assert main(["doctor"]) == 0
    short = capsys.readouterr().out
    assert main(["doctor", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(short.splitlines()) > 2
    assert "can be used: docs/mac.md" in short


def test_where_there_is_no_engine_the_exit_status_is_1(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("ORION_ANE_LIBRARIES")
    assert main(["doctor"]) == 1
    assert "the engine cannot be used here: docs/mac.md" in capsys.readouterr().out
    monkeypatch.setenv("ORION_ANE_LIBRARIES", str(tmp_path))
    assert main(["doctor", "--json"]) == 1
    assert "a library cannot be loaded" in capsys.readouterr().out


def test_a_system_with_other_types_is_named_line_by_line(drifted, monkeypatch):
    """In a process of its own: two systems in one would share their classes."""
    monkeypatch.setenv("ORION_ANE_LIBRARIES", str(drifted))
    command = [sys.executable, "-m", "orion_ane", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NO  -[_ANEInMemoryModel loadWithQoS:options:error:]: mismatch: " in done.stdout
    assert "do not use the engine until this is understood" in done.stdout
