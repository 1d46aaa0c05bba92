"""The stand-in, built once, and a device on it for tests that need no worker of their own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in_build import built, environment

from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine


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
    assert left_in(tmp_path) == [], "left over"


@pytest.fixture(scope="module")
def neural_engine(stand_in, tmp_path_factory) -> Iterator[NeuralEngine]:
    """One for all tests of a module, since it starts slowly.

    Its stand-in computes as the emulator's default target does.
    """
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(stand_in, target="strict").items():
            patch.setenv(name, value)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", None)
        made = NeuralEngine()
        yield made
        made.close()
    assert left_in(folder) == [], "left over"


def left_in(folder: Path) -> list[str]:
    """What the bridge has made there, and the framework."""
    own = [path.name for path in folder.glob("*") if path.name.startswith("orion-ane")]
    return [*own, *(path.name for path in folder.glob("*_*_*"))]
