"""The devices that the conformance suite runs on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from stand_in_build import built, environment

from orion_ane.runtime import Backend, backend
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.runtime.backends.neural_engine.process import Process, Spool

DEVICES = ("emulator", "cpu", "ane")
WITHOUT_LIMITS = {"emulator": {"target": None}}
"""How a device is opened for programs that no target would take; most need no more."""

ROW = "test_a_row_means_what_the_table_says"

Open = Callable[..., Backend]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend") or DEVICES
        metafunc.parametrize("device", chosen, scope="session")


@pytest.hookimpl(tryfirst=True)  # before those marked slow are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the rows, each of which takes device `ane` 40 ms, every fourth runs with each change.

    The emulator, whose arithmetic that device's stand-in borrows, runs all of them.
    `--backend ane` chooses all of them for it too.
    """
    if config.getoption("--backend"):
        return
    rows = [item for item in items if item.name.startswith(f"{ROW}[ane-")]
    for i, item in enumerate(rows):
        if i % 4:
            item.add_marker(pytest.mark.slow)


class Shared(NeuralEngine):
    """A device `ane` with counts of its own in a worker that others use too: it starts slowly."""

    begun: tuple[Process, Spool]
    numbers = itertools.count(0, 1_000_000)

    def __init__(self) -> None:
        super().__init__(target=None, compiles_each=1_000_000)
        self._count = next(self.numbers)

    def _begun(self) -> tuple[Process, Spool]:
        return self.begun


@pytest.fixture(scope="session")
def neural_engine(tmp_path_factory) -> Iterator[Open]:
    """Opens device `ane` on the stand-in, whose arithmetic is the emulator's."""
    folder = built(tmp_path_factory.mktemp("stand-in"))
    settings = environment(folder, target="none") | {
        "STANDIN_SWITCHES": "programs=1000000,reload=1"
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        process = Process(timeout_s=240)
        Shared.begun = process, Spool(process)

    def opened(**options: Any) -> Backend:
        assert set(options) <= {"threads"}  # which this device has none of
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORION_ANE_LIBRARIES", settings["ORION_ANE_LIBRARIES"])
            return Shared()

    yield opened
    process.close()


@pytest.fixture
def opened(device: str, request: pytest.FixtureRequest) -> Open:
    """The device, opened with further options."""
    if device == "ane":
        return request.getfixturevalue("neural_engine")
    return partial(backend, device, **WITHOUT_LIMITS.get(device, {}))


@pytest.fixture
def loaded(opened: Open) -> Backend:
    return opened()
