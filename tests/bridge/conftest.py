"""The stand-in, built once a session."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in_build import built, environment


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="session")
def drifted(tmp_path_factory) -> Path:
    """A later system, which declares one argument wider."""
    return built(tmp_path_factory.mktemp("drifted"), "FLAGS=-DSTANDIN_DRIFTED")


@pytest.fixture
def workers(stand_in, monkeypatch, tmp_path) -> Iterator[None]:
    """Workers of this test find the stand-in, and evaluate programs op by op."""
    for name, value in environment(stand_in).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    gc.collect()  # devices that nobody closed
    left = [path.name for path in tmp_path.glob("*") if path.name.startswith("orion-ane")]
    left += [path.name for path in tmp_path.glob("*_*_*")]
    assert left == [], "left over"
