"""Builds the stand-in, where Objective-C and GNUstep are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGES = "gobjc libgnustep-base-dev gnustep-make"


def built(folder: Path, *flags: str) -> Path:
    """The libraries in a folder.  With CI=true they have to be: a skip would hide the bridge."""
    if sys.platform != "linux" or not shutil.which("gnustep-config"):
        reason = f"the bridge is not tested: no GNUstep here (Debian: apt-get install {PACKAGES})"
        if os.environ.get("CI") == "true" and not os.environ.get("ORION_NO_BRIDGE"):
            pytest.fail(reason)
        pytest.skip(reason)
    command = ["make", "-s", "-f", str(HERE / "standin" / "Makefile"), f"OUT={folder}"]
    subprocess.run([*command, *flags], check=True, capture_output=True, text=True)
    return folder


def environment(folder: Path, target: str = "") -> dict[str, str]:
    """What a worker finds the stand-in by; with a target, it computes as the emulator does."""
    return {
        "ORION_ANE_LIBRARIES": str(folder),
        "STANDIN_DEVICE": "emulated_engine",
        "STANDIN_TARGET": target,
        "STANDIN_STRICT": "1",
        "PYTHONPATH": str(HERE),
    }
