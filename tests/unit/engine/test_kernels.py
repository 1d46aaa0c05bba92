"""When numba is loaded, and that kernels work where they can be kept nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import orion_ane
from orion_ane.engine import kept_code

KERNEL = """
    import numpy as np
    from orion_ane.engine import kernels
    h = np.arange(1000, dtype=np.float32).astype(np.float16).view(np.uint16)
    x = np.empty(1000, np.float32)
    kernels.widen(h, x)
    assert x[999] == 999
    print(kernels.__file__, sum(kernels.widen.stats.cache_hits.values()))
"""


def python(code: str, **environment: object) -> list[str]:
    """What a fresh interpreter prints, word by word."""
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=inherited | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the package in which nothing can be written beside the kernels.

    Not even by root: where numba would make its directory there is a file.
    """
    copy = tmp_path / "installed" / "orion_ane"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(orion_ane.__file__).parent, copy, ignore=ignored)
    (copy / "engine" / "__pycache__").touch()
    return copy


def test_numba_is_imported_only_for_a_kernel():
    kept = {name: os.environ[name] for name in ("NUMBA_CACHE_DIR",) if name in os.environ}
    code = """
        import sys
        import numpy as np
        from orion_ane.engine import lower
        from orion_ane.ir import Graph
        from orion_ane.ops import conv1x1, input_, weight
        from orion_ane.types import DType, TensorType

        x = input_("x", TensorType(DType.FP16, (1, 8, 1, 1)))
        w = weight("w", TensorType(DType.FP16, (8, 8, 1, 1)))
        for y in (x + x, conv1x1(x, w)):
            weights = {w.op: np.ones((8, 8, 1, 1), np.float16)}
            tape = lower(Graph({"x": x}, {"y": y}), weights, numerics="fp16")
            assert tape.run({"x": np.ones(x.type.shape, np.float16)})["y"].max() in (2, 8)
            print("numba" in sys.modules)
    """
    assert python(code, **kept)[0] == "False"
    is_kept = kept_code.can_keep()  # then it needs none from the second process on
    assert python(code, **kept) == ["False", str(not is_kept)]


def test_a_kernel_works_where_it_can_be_kept_nowhere(installed, tmp_path):
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "below"  # no directory can be made there
    places = {"PYTHONPATH": installed.parent, "PYTHONDONTWRITEBYTECODE": 1}
    places |= dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"), nowhere)
    for hits in "00":
        assert python(KERNEL, **places)[1] == hits
