"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")

ROOT = Path(__file__).resolve().parent.parent


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
