"""Devices by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from orion_ane.errors import BackendError, ConfigError
from orion_ane.runtime import backend, registry
from orion_ane.runtime.backends.cpu import Cpu

PORTABLE = ("emulator", "cpu")


@pytest.mark.parametrize("name", PORTABLE)
def test_a_backend_has_the_name_it_goes_by(name):
    assert backend(name).name == name


def test_auto_says_what_it_took():
    assert backend("auto").name == "cpu"


@pytest.mark.parametrize("name", ["gpu", ""])
def test_a_device_that_is_not_there_is_refused_with_the_others_named(name):
    with pytest.raises(BackendError) as refused:
        backend(name)
    want = "want auto, emulator, cpu or ane"
    assert str(refused.value) == f"device {name}: not available here: {want}"


def test_a_machine_without_a_neural_engine_says_so_and_names_the_others(monkeypatch):
    monkeypatch.delenv("ORION_ANE_LIBRARIES", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(BackendError, match=r"no Neural Engine(.|\n)*emulator(.|\n)*cpu"):
        backend("ane")


@pytest.mark.parametrize("name", [*PORTABLE, "auto"])
def test_options_reach_the_device(name):
    with pytest.raises(ConfigError, match="threads: no such number of threads: got 0"):
        backend(name, threads=0)
    with pytest.raises(ConfigError, match=r"colour: no such option of device \w+: want threads"):
        backend(name, colour="red")


def test_an_option_of_another_device_is_refused_with_that_device_named():
    with pytest.raises(ConfigError) as refused:
        backend("cpu", target="m1")
    assert str(refused.value) == (
        "target: no such option of device cpu: want threads or numerics\n"
        "  hint: device emulator or ane takes it"
    )


class Outside(Cpu):
    name = "outside"


def test_another_package_may_bring_a_device(monkeypatch):
    entry = EntryPoint("outside", f"{__name__}:Outside", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: EntryPoints([entry]))
    monkeypatch.setattr(EntryPoint, "load", lambda self: Outside)
    assert backend("outside", threads=1).name == "outside"
    with pytest.raises(BackendError, match="want auto, emulator, cpu, ane or outside"):
        backend("gpu")
