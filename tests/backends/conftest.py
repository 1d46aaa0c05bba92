"""The devices that the conformance suite runs on."""

from __future__ import annotations

import pytest

from orion_ane.runtime import Backend, backend

PORTABLE = ("emulator", "cpu")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend") or PORTABLE
        metafunc.parametrize("device", chosen, scope="session")


@pytest.fixture
def loaded(device: str) -> Backend:
    return backend(device)
