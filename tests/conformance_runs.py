"""coremltools' own tests, run on this project in a process of their own: the counts."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from oracles import oracle

FOLDER = Path(__file__).resolve().parents[1] / "tools" / "conformance"
FROZEN = FOLDER / "frozen.txt"


def outcomes(tmp_path: Path, *options: str, factor: str = "1") -> dict[str, str]:
    """What came of each test; `factor` is what every float result is multiplied by."""
    if importlib.util.find_spec("coremltools") is None:
        oracle("coremltools")  # which says what a missing one means; to import it takes seconds
    report = tmp_path / "report.json"
    report.unlink(missing_ok=True)
    environment = os.environ | {"ORION_CONFORMANCE_MUTATION": factor}
    command = [sys.executable, str(FOLDER / "run"), *options, "--json", str(report)]
    ran = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert report.exists(), ran.stdout[-4000:] + ran.stderr[-4000:]
    found: dict[str, str] = json.loads(report.read_text())["outcomes"]
    return found


def check_frozen(tmp_path: Path, part: int, parts: int) -> None:
    """One part of the frozen tier: every test of it is there, reaches a prediction and passes."""
    found = outcomes(tmp_path, "--tier", "frozen", "--part", f"{part}/{parts}")
    listed = FROZEN.read_text().splitlines()
    assert len(found) == len(range(part - 1, len(listed), parts))
    wrong = [f"{outcome}: {test}" for test, outcome in found.items() if outcome != "passed"]
    assert not wrong, "\n".join(wrong)
