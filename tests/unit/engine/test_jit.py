from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from orion_ane.engine import jit
from orion_ane.engine.compiling import clock, compiling, seconds
from orion_ane.engine.jit import _Cache, check_processor, compiled
from orion_ane.engine.threads import Threads
from orion_ane.errors import BackendError


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
    compiled(is_part=True)(double).compile((numba.float64,))
    assert not list(tmp_path.rglob("*.nbc"))
    compiled()(double)(np.float64(1))
    assert list(tmp_path.rglob("*.nbc"))


def test_a_part_is_taken_into_a_kernel_and_is_no_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    finish = JITCodeLibrary._finalize_specific

    def watched(library: JITCodeLibrary) -> None:
        made.append(library.name)
        finish(library)

    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", watched)
    part = compiled(is_part=True)(double)

    def twice(x: float) -> float:
        return part(x) + part(x + 1)

    assert compiled()(twice)(1.0) == 6.0
    assert [name for name in made if name.endswith(("twice", "double"))] == [twice.__qualname__]


def test_a_kernel_runs_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("orion_ane.engine.jit._Cache", nowhere)
    assert compiled()(double)(1.5) == 3.0


def test_a_processor_without_fp16_conversions_is_refused_by_name() -> None:
    check_processor("x86_64", {"f16c": True, "fma": True})
    check_processor("arm64", {})
    for machine in ("x86_64", "AMD64"):
        with pytest.raises(BackendError, match="got no f16c, want x86-64-v3"):
            check_processor(machine, {"f16c": False, "fma": True})


def test_a_kernel_that_is_not_kept_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    jit.tell.cache_clear()
    for _ in range(2):
        compiled()(double)(np.float64(1))
    assert [record.message[:15] for record in caplog.records] == ["compiling loops"]
    jit.tell.cache_clear()
    compiled()(double)(np.float64(1))
    assert len(caplog.records) == 1


def test_a_kernel_that_cannot_be_kept_is_told_of_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nowhere(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("orion_ane.engine.jit._Cache", nowhere)
    jit.tell.cache_clear()
    compiled()(double)(np.float64(1))
    assert [record.message[:15] for record in caplog.records] == ["compiling loops"]


def test_the_loops_of_others_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    jit.tell.cache_clear()
    numba.njit(lambda x: x + 1)(np.float64(1))
    assert not caplog.records


def test_the_clock_of_runs_stands_still_while_a_kernel_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    before, wall, spent = clock(), time.perf_counter(), seconds()
    compiled()(double)(np.float64(1))
    wall, ran, spent = time.perf_counter() - wall, clock() - before, seconds() - spent
    assert spent > 0.5 * wall
    assert ran + spent == pytest.approx(wall, abs=0.05)


def test_a_wait_for_what_another_thread_compiles_is_no_run_s_time() -> None:
    kernel, pause = compiled()(double), 0.2
    with ThreadPoolExecutor(1) as pool, numba.core.compiler_lock.global_compiler_lock:
        waiting = pool.submit(_clock_over, kernel, np.float64(1))
        time.sleep(pause)
        before = clock()
        time.sleep(pause)
        assert clock() - before >= pause
    ran, spent = waiting.result()
    assert ran < pause
    assert spent > pause


def test_what_threads_compile_for_the_one_that_waits_is_its_own() -> None:
    pause = 0.2

    def slow(_: int) -> None:
        with compiling():
            time.sleep(pause)

    ran, spent = _clock_over(Threads(2).each, slow, range(2))
    assert ran < pause / 2
    assert pause / 2 < spent < 3 * pause


def _clock_over(function: Callable[..., object], *arguments: object) -> tuple[float, float]:
    """What a call takes by the clock of runs, and what it spends beside."""
    before, spent = clock(), seconds()
    function(*arguments)
    return clock() - before, seconds() - spent
