"""The devices that the conformance suite runs on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from orion_ane.runtime import Backend, backend

PORTABLE = ("emulator", "cpu")
WITHOUT_LIMITS = {"emulator": {"target": None}}
"""How a device is opened for programs that no target would take; most need no more."""

Open = Callable[..., Backend]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend") or PORTABLE
        metafunc.parametrize("device", chosen, scope="session")


@pytest.fixture
def opened(device: str) -> Open:
    """The device, opened with further options."""
    return partial(backend, device, **WITHOUT_LIMITS.get(device, {}))


@pytest.fixture
def loaded(opened: Open) -> Backend:
    return opened()
