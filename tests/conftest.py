"""Fixtures every test may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")

os.environ["ORION_CACHE"] = "off"  # no test leaves anything in the user's cache, or finds it there

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in golden/")
    parser.addoption("--backend", action="append", help="run tests/backends on this device alone")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from schedule import Files

    return Files(config, log)


def pytest_collection_finish() -> None:
    """Modules and tests are there to the end: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file `tests/golden/<path>`; --update-golden rewrites it."""

    def compare(path: str, text: str) -> None:
        file = ROOT / "tests" / "golden" / path
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
        assert file.is_file(), f"{file} is missing: run with --update-golden, then review it"
        assert text == file.read_bytes().decode()

    return compare


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260306)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of small real models; tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("ORION_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "stories260K").is_dir():
        pytest.skip(f"no test data in {folder}; set ORION_TEST_DATA to the folder that has it")
    return folder
