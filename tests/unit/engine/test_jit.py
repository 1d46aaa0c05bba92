from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

from orion_ane.engine.jit import _Cache, compiled


def double(x: float) -> float:
    return 2 * x


def test_a_kernel_computes() -> None:
    assert compiled()(double)(3.0) == 6.0


def test_a_change_in_a_source_makes_a_kernel_compile_anew(tmp_path: Path) -> None:
    source = ModuleType("source")
    source.__file__ = str(tmp_path / "source.py")
    keys = []
    for text in ("one", "one", "two"):
        Path(source.__file__).write_text(text)
        codegen = numba.core.registry.cpu_target.target_context.codegen()
        keys.append(_Cache(double, (source,))._index_key((numba.float64,), codegen))
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_a_kernel_is_kept_on_disk_and_a_part_of_others_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    compiled(is_part=True)(double)(np.float64(1))
    assert not list(tmp_path.rglob("*.nbc"))
    compiled()(double)(np.float64(1))
    assert list(tmp_path.rglob("*.nbc"))


def test_a_kernel_runs_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("orion_ane.engine.jit._Cache", nowhere)
    assert compiled()(double)(1.5) == 3.0
