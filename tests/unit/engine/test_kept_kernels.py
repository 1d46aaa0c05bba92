"""Kernels are kept where they may be, and the next process compiles none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import orion_ane
from orion_ane.engine.plan import natives
from orion_ane.engine.plan.layout import Kind

RUN = """
import logging
logging.basicConfig()
from orion_ane.engine import kernels
from orion_ane.engine.plan import rows
import numpy as np
wide = np.empty(3, np.float32)
kernels.widen(np.full(3, 0x3C00, np.uint16), wide)
assert wide.tolist() == [1, 1, 1]
assert rows.softmax.address
print(kernels.__file__)
"""


def run(package: Path, **where: Path) -> str:
    """What a new process says in whose eyes the package lies there; where it was found, too."""
    kept = {"NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    environment |= {name: str(path) for name, path in where.items()}
    environment["PYTHONPATH"] = str(package)
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).is_relative_to(package)
    return done.stderr


def test_they_are_kept_in_the_folder_that_is_asked_for(tmp_path: Path) -> None:
    package = Path(str(orion_ane.__file__)).parents[1]
    assert "compiling loops" in run(package, NUMBA_CACHE_DIR=tmp_path)
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
    assert "compiling loops" not in run(package, NUMBA_CACHE_DIR=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="where a user's caches are differs")
def test_where_the_package_cannot_be_written_they_are_kept_in_the_users_cache(
    tmp_path: Path,
) -> None:
    source, installed = Path(str(orion_ane.__file__)).parent, tmp_path / "site"
    shutil.copytree(
        source, installed / "orion_ane", ignore=shutil.ignore_patterns("__pycache__", "tests")
    )
    for folder in {file.parent for file in installed.rglob("*.py")}:
        (folder / "__pycache__").touch()  # no folder, so that nothing can be kept, by root neither
    cache = tmp_path / "cache"
    assert "compiling loops" in run(installed, XDG_CACHE_HOME=cache)
    assert len(list(cache.rglob("*.nbc"))) == 2
    assert "compiling loops" not in run(installed, XDG_CACHE_HOME=cache)


ASIDE = """
import sys
from orion_ane.engine.plan import natives
from orion_ane.engine.plan.layout import Kind
natives.prepare([Kind.ROTATE, Kind.ROTATE])
assert all(held.load() for held in (natives.NATIVES[Kind.ROTATE], natives.lead, natives.follow))
assert "numba" not in sys.modules
"""


@pytest.mark.skipif(sys.platform != "linux", reason="code is kept on Linux alone")
def test_what_is_missing_is_compiled_in_other_processes(tmp_path: Path) -> None:
    """One that computes needs neither numba nor its memory then."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ASIDE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("compiling loops") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="code is kept on Linux alone")
def test_where_nothing_can_be_kept_nothing_is_compiled_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(natives, "Popen", started)
    monkeypatch.setattr(natives.Held, "load", lambda _: False)
    monkeypatch.setattr(natives, "processors", lambda: 2)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(AssertionError):
        natives.prepare([Kind.ROTATE])
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    natives.prepare([Kind.ROTATE])


def test_kernels_of_a_module_are_compiled_by_one_process() -> None:
    names = ["rows.reduce", "attention.attend", "rows.softmax", "products.rows", "products.matmul"]
    one, other = natives._shares(names, 2)
    assert sorted(one + other) == sorted(names)
    assert one == ["attention.attend"]
    assert natives._shares(names, 1) == [
        ["attention.attend", "products.rows", "products.matmul", "rows.reduce", "rows.softmax"]
    ]
    assert len(natives._shares(names, 9)) == 3
    assert natives._shares([], 2) == []
