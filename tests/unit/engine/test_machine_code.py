"""Kernels' code is put in memory from the disk, as numba would, or is left to numba."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from orion_ane.engine import kept_code, machine_code
from orion_ane.engine.jit import Native, native
from orion_ane.engine.machine_code import UnlinkableError, function, linked
from orion_ane.engine.plan import table
from orion_ane.engine.plan.layout import Kind
from orion_ane.engine.plan.natives import Held
from orion_ane.engine.plan.plan import plan
from orion_ane.engine.plan.rows import reduce, softmax
from orion_ane.engine.plan.run import enlist
from orion_ane.engine.plan.tapes import tape
from orion_ane.engine.threads import Threads
from orion_ane.errors import BackendError
from orion_ane.ir import Graph
from orion_ane.ops import exp, input_, reduce_mean, tanh
from orion_ane.ops import softmax as softmax_
from orion_ane.types import DType, TensorType

SIGNATURE = "int64(int64, int64)"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="numba loads all code here"
)


@pytest.fixture(scope="module")
def code() -> tuple[str, bytes]:
    """The largest kernel's but for tapes: constants, a table of jumps, calls of the C library."""
    found = softmax.code
    assert found is not None
    return found


def test_linked_code_does_what_numba_loaded() -> None:
    assert enlist.code is not None
    name, data = enlist.code
    ours = function(linked(data, name), SIGNATURE)
    for call in (ours, enlist):
        shared = np.zeros(1024, np.int64)
        assert [call(shared.ctypes.data, wanted) for wanted in (2, 3, 1)] == [2, 1, 0]


def test_plans_of_linked_code_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that an object refers to: constants, jumps by a table, the C library."""
    x = input_("x", TensorType(DType.FP32, (1, 3, 5, 70)))
    graph = Graph({"x": x}, {"y": softmax_(tanh(x) * exp(x), axis=-1), "z": reduce_mean(x, (3,))})
    feed = {"x": np.random.default_rng(0).normal(0, 2, x.type.shape).astype(np.float32)}
    found = []
    for place in (address_by_numba, address_by_us):
        kernels = {Kind.TAPE: tape, Kind.SOFTMAX: softmax, Kind.REDUCE: reduce}
        held = {kind: SimpleNamespace(address=place(of)) for kind, of in kernels.items()}
        monkeypatch.setattr(table, "NATIVES", held)
        found.append(plan(graph, {}, rounds=False, threads=Threads(1)).run(feed))
    for name in graph.outputs:
        np.testing.assert_array_equal(found[0][name], found[1][name])


def address_by_numba(kernel: Native) -> int:
    return kernel.address


def address_by_us(kernel: Native) -> int:
    assert kernel.code is not None
    return linked(kernel.code[1], kernel.code[0])


def test_memory_that_runs_is_written_to_no_more(code: tuple[str, bytes]) -> None:
    address = linked(code[1], code[0])
    (rights,) = (
        line.split()[1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        for start, end in [(int(part, 16) for part in line.split()[0].split("-"))]
        if start <= address < end
    )
    assert rights.startswith("r-x")


def test_code_that_is_cut_short_or_of_another_kind_is_refused(code: tuple[str, bytes]) -> None:
    name, data = code
    for size in (0, 16, 63, 64, len(data) // 2, len(data) - 1):
        with pytest.raises(UnlinkableError):
            linked(data[:size], name)
    arm = data[:18] + b"\xb7\0" + data[20:]
    with pytest.raises(UnlinkableError, match="no ELF object of x86-64"):
        linked(arm, name)
    with pytest.raises(UnlinkableError):
        linked(data, "no_such_function")


def test_a_name_that_the_process_does_not_have_is_refused(code: tuple[str, bytes]) -> None:
    name, data = code
    with pytest.raises(UnlinkableError, match="undefined symbol"):
        linked(data.replace(b"\0PyErr_SetString\0", b"\0PyErr_SetStrinX\0"), name)


def test_code_is_found_as_it_was_kept_and_damaged_code_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: tuple[str, bytes]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kept_code.find("softmax") is None
    kept_code.keep("softmax", *code)
    assert kept_code.find("softmax")
    (file,) = tmp_path.rglob("*softmax*")
    whole = file.read_bytes()
    for spoilt in (b"", whole[:-1], whole[:200] + b"?" + whole[201:]):
        file.write_bytes(spoilt)
        assert kept_code.find("softmax") is None
    file.write_bytes(whole)
    monkeypatch.setattr(kept_code, "_key", lambda: "of other sources")
    assert kept_code.find("softmax") is None


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: tuple[str, bytes]) -> Path:
    """The file of a kernel that was kept, in a folder of its own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kept_code.keep("softmax", *code)
    (file,) = tmp_path.rglob("softmax.*")
    assert kept_code.find("softmax")
    return file


def test_the_code_of_another_kernel_is_refused(kept: Path) -> None:
    kept.rename(kept.with_name(kept.name.replace("softmax", "reduce")))
    assert kept_code.find("reduce") is None


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_code_that_everybody_may_write_is_refused_with_a_word(
    kept: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    kept.chmod(mode)
    assert kept_code.find("softmax") is None
    assert kept_code.find("softmax") is None
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        f"kept code in {kept} is not used: everybody may write to it"
    ]
    kept.chmod(0o660)  # a group is as the user wants it
    assert kept_code.find("softmax")


def test_a_folder_where_everybody_may_replace_code_is_refused(
    kept: Path, code: tuple[str, bytes]
) -> None:
    kept.parent.chmod(0o777)
    assert kept_code.find("softmax") is None
    kept_code.keep("reduce", *code)
    assert list(kept.parent.iterdir()) == [kept]
    for mode in (0o1777, 0o775):
        kept.parent.chmod(mode)
        assert kept_code.find("softmax")


def test_code_of_another_user_is_refused(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "_owners", lambda: frozenset({kept.stat().st_uid + 1}))
    assert kept_code.find("softmax") is None


def test_what_is_no_file_is_refused_at_once(kept: Path) -> None:
    kept.unlink()
    os.mkfifo(kept)  # whoever opens it to read waits for a writer
    assert kept_code.find("softmax") is None
    kept.unlink()
    kept.mkdir()
    assert kept_code.find("softmax") is None


def test_where_code_may_not_run_numba_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: tuple[str, bytes]
) -> None:
    def refuse(base: int, size: int) -> None:
        raise OSError(13, "code in memory is not allowed")

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kept_code.keep("run.enlist", *code)
    monkeypatch.setattr(machine_code, "_allow", refuse)
    assert kept_code.find("run.enlist") is None
    assert Held("run", "enlist", SIGNATURE).address == enlist.address


def test_a_kernel_without_a_place_on_the_disk_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("orion_ane.engine.jit._Cache", type("Nowhere", (), {"__init__": nowhere}))

    def first(x: int, y: int) -> int:
        return x - y

    kernel = native(SIGNATURE)(first)
    assert kernel(5, 3) == 2
    assert kernel.code is None


def test_kernels_that_numba_is_told_not_to_compile_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(BackendError, match="got NUMBA_DISABLE_JIT=1"):
        native(SIGNATURE)(lambda x, y: x - y)
