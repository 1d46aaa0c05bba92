"""The stand-in, built once a session where Objective-C and GNUstep are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGES = "gobjc libgnustep-base-dev gnustep-make"


def built(folder: Path, *flags: str) -> Path:
    """The libraries in a folder.  With CI=true they have to be: a skip would hide the bridge."""
    if sys.platform != "linux" or not shutil.which("gnustep-config"):
        reason = f"the bridge is not tested: no GNUstep here (Debian: apt-get install {PACKAGES})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    command = ["make", "-s", "-f", str(HERE / "standin" / "Makefile"), f"OUT={folder}"]
    subprocess.run([*command, *flags], check=True, capture_output=True, text=True)
    return folder


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
    monkeypatch.setenv("ORION_ANE_LIBRARIES", str(stand_in))
    monkeypatch.setenv("STANDIN_DEVICE", "emulated_engine")
    monkeypatch.setenv("STANDIN_STRICT", "1")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    left = [p.name for p in tmp_path.glob("*") if p.name.startswith("orion-ane") or "_" in p.name]
    assert left == [], "left over"
