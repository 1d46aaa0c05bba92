"""The bridge in this process: ownership, failures, directories, on a real Objective-C runtime."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import emulated_engine
import numpy as np
import pytest
from programs import OF, answer, feed, scaled

from orion_ane.errors import BackendError
from orion_ane.mil import Program
from orion_ane.runtime.backends.neural_engine import signatures as call
from orion_ane.runtime.backends.neural_engine.device import Device, Model
from orion_ane.runtime.backends.neural_engine.libraries import libraries
from orion_ane.runtime.backends.neural_engine.plan import Run
from orion_ane.runtime.backends.neural_engine.worker import Planned


@pytest.fixture(autouse=True)
def here(workers) -> None:
    """The stand-in of this process is set by the tests themselves."""


@pytest.fixture
def device(monkeypatch, tmp_path) -> Iterator[Device]:
    monkeypatch.delenv("STANDIN_DEVICE")
    home = tmp_path / "home"
    home.mkdir()
    made = Device(home)
    engine = emulated_engine.Engine(emulated_engine.Plain())
    library = emulated_engine.library()
    library.standin_reset()
    emulated_engine.use(engine)
    yield made
    gc.collect()
    library.standin_reset()
    surfaces = ctypes.CDLL(libraries().surfaces).standin_surfaces
    assert surfaces() == 0, "surfaces are left"
    assert library.standin_get(b"loaded") == 0, "programs are left"
    assert engine.loaded == {}


@pytest.fixture
def spooled(tmp_path):
    """A model of a program whose blob files lie on the disk."""

    def made(device: Device, program: Program) -> Model:
        files = {}
        for i, (path, data) in enumerate(program.weights.items()):
            files[path] = tmp_path / f"{program.weights_key}-{i}"
            files[path].write_bytes(data)
        return device.model(program.text, files)

    return made


def run(device: Device, model: Model, fed: dict[str, np.ndarray]) -> np.ndarray:
    inputs = [device.surfaces.make(OF.nbytes) for _ in fed]
    output = device.surfaces.make(OF.nbytes)
    program = emulated_engine.program_of(model.directory)
    for surface, port in zip(inputs, program.inputs, strict=True):
        with surface.mapped() as view:
            view[:] = fed["shift" if "shift" in port.name else "x"].tobytes()
    request = device.request(inputs, [output])
    try:
        model.evaluate(request)
        with output.mapped(to_read=True) as view:
            return np.frombuffer(bytes(view), np.float16).reshape(OF.shape)
    finally:
        request.close()
        for surface in (*inputs, output):
            surface.close()


def ready(device: Device, spooled, by: float) -> Model:
    model = spooled(device, scaled(by))
    model.compile()
    return model


def test_text_and_weights_reach_the_device_and_results_come_back(device, spooled):
    fed = feed()
    model = ready(device, spooled, 2)
    np.testing.assert_array_equal(run(device, model, fed), answer(2, fed))
    assert (model.directory / "weights").is_dir()
    model.close()
    model.close()
    assert not model.directory.exists()


def test_what_is_made_is_released_once(device, spooled):
    """Counted by the runtime itself: more would be a leak, fewer a crash later."""
    objc = ctypes.CDLL(libraries().objc)
    objc.CFGetRetainCount.argtypes, objc.CFGetRetainCount.restype = [ctypes.c_void_p], ctypes.c_long
    model = spooled(device, scaled(2))
    assert objc.CFGetRetainCount(model._of) == 1
    surface = device.surfaces.make(OF.nbytes)
    assert objc.CFGetRetainCount(surface.of) == 1
    request = device.request([surface], [surface])
    assert objc.CFGetRetainCount(request.of) == 1
    assert objc.CFGetRetainCount(surface.of) == 3  # the request holds it on either side
    request.close()
    assert objc.CFGetRetainCount(surface.of) == 1
    surface.close()
    model.close()


def test_models_with_equal_texts_and_weights_share_a_directory_until_the_last_goes(device, spooled):
    first, second = ready(device, spooled, 2), spooled(device, scaled(2))
    assert first.directory == second.directory
    second.write(second._files)
    second.close()
    assert first.directory.is_dir()
    fed = feed()
    np.testing.assert_array_equal(run(device, first, fed), answer(2, fed))
    first.close()
    assert not first.directory.exists()


def test_a_donors_plan_loads_other_weights_without_a_compile(device, spooled):
    fed, donor = feed(), ready(device, spooled, 2)
    model = spooled(device, scaled(3))
    model.take_plan(donor)
    assert emulated_engine.library().standin_get(b"compiles") == 1
    np.testing.assert_array_equal(run(device, model, fed), answer(3, fed))
    donor.close()
    np.testing.assert_array_equal(run(device, model, fed), answer(3, fed))
    model.close()


def test_a_donor_gives_its_plan_also_where_the_framework_has_removed_its_directory(device, spooled):
    """As it does when any model of the same text and weights is unloaded, anywhere."""
    fed, donor = feed(), ready(device, spooled, 2)
    ready(device, spooled, 2).close()
    assert not donor.directory.exists()
    model = spooled(device, scaled(3))
    model.take_plan(donor)
    np.testing.assert_array_equal(run(device, model, fed), answer(3, fed))
    donor.close()
    model.close()


@pytest.mark.parametrize(
    ("switches", "purge", "by"),
    [
        ({}, False, 2),
        ({"reload": 1}, False, 5),
        ({"reload_after_purge": 1}, True, 5),
    ],
)
def test_a_reload_runs_with_the_weights_that_the_device_chooses(
    device, spooled, tmp_path, switches, purge, by
):
    emulated_engine.switch(**switches)
    fed, model = feed(), ready(device, spooled, 2)
    other = tmp_path / "other"
    ((path, data),) = scaled(5).weights.items()
    other.write_bytes(data)
    model.reload({path: other}, purge=purge)
    np.testing.assert_array_equal(run(device, model, fed), answer(by, fed))
    model.close()


def test_a_load_that_fails_once_is_tried_again(device, spooled):
    emulated_engine.switch(fail_loads=1)
    model = ready(device, spooled, 2)
    model.close()
    emulated_engine.switch(fail_loads=2)
    model = spooled(device, scaled(2))
    with pytest.raises(BackendError, match=r"load: .*Program load failure.*appleneuralengine 6"):
        model.compile()
    model.close()


def test_a_failure_without_an_nserror_is_one_too(device, spooled):
    emulated_engine.switch(without_error=1, fail_compiles=1)
    model = spooled(device, scaled(2))
    with pytest.raises(BackendError, match="compile: it failed without an NSError"):
        model.compile()
    model.close()


def test_the_compilers_words_are_kept_with_domain_and_code(device, spooled):
    model = device.model("program(1.3)\n{ nonsense }", {})
    with pytest.raises(BackendError, match=r"ANECCompile\(\) FAILED.*neuralengine.compiler 1\]"):
        model.compile()
    model.close()


def test_a_weight_file_outside_the_directory_is_refused(device, tmp_path):
    (tmp_path / "w").write_bytes(bytes(128))
    model = device.model("program(1.3)\n", {"@model_path/../../w": tmp_path / "w"})
    with pytest.raises(BackendError, match=r"weight file's path: got @model_path/\.\./\.\./w"):
        model.compile()
    model.close()


def test_a_large_weight_is_copied_neither_in_memory_nor_on_the_disk(device, tmp_path):
    """80 MiB of it, through the bridge into the framework's folder."""
    file, size = tmp_path / "w", 80 << 20
    with file.open("wb") as opened:
        opened.truncate(size)
    before = anonymous_kib()
    model = device.model("program(1.3)\n", {"@model_path/weights/w.bin": file})
    model.write({"@model_path/weights/w.bin": file})
    assert anonymous_kib() - before < size / 1024 / 8
    there = model.directory / "weights" / "w.bin"
    assert there.stat().st_ino == file.stat().st_ino  # a second name of the same bytes
    model.close()


def anonymous_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_a_surface_is_touched_under_its_lock_alone(device):
    """With STANDIN_STRICT its pages are closed otherwise: what forgets the lock ends here."""
    surface = device.surfaces.make(4096)
    with surface.mapped() as view:
        view[:] = b"\x07" * 4096
    with surface.mapped(to_read=True) as view:
        assert bytes(view) == b"\x07" * 4096
    surface.close()
    with pytest.raises(BackendError, match="surface: the system has no memory for it: got 0 bytes"):
        device.surfaces.make(0)


def test_a_plan_gives_back_its_surfaces_also_where_there_is_no_memory_for_all_of_them(device):
    """The fixture counts them."""
    runs = (Run(0, (0, 1), (2,)), Run(1, (2, 1), (0,)), Run(0, (0, 1), (2,)))
    plan = Planned(device, [4096] * 3, runs)
    assert len(plan.requests) == 2
    plan.close()
    with pytest.raises(BackendError, match="no memory for it"):
        Planned(device, [4096, 0], runs)


def test_other_threads_go_on_while_the_device_works(device, spooled, monkeypatch):
    model, ticks = ready(device, spooled, 2), []
    original = emulated_engine.Plain.compile

    def slow(self, program):
        time.sleep(0.3)
        return original(self, program)

    monkeypatch.setattr(emulated_engine.Plain, "compile", slow)
    other = spooled(device, scaled(4))
    thread = threading.Thread(target=other.compile)
    thread.start()
    while thread.is_alive():
        ticks.append(time.monotonic())
        time.sleep(0.01)
    thread.join()
    assert len(ticks) > 5
    for made in (other, model):
        made.close()


def test_a_system_with_other_types_is_refused_before_anything_is_called(drifted, monkeypatch):
    """In a process of its own: two systems in one would share their classes."""
    monkeypatch.setenv("ORION_ANE_LIBRARIES", str(drifted))
    code = "from orion_ane.runtime.backends.neural_engine.device import Device; Device(None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "loadWithQoS:options:error:]: has other types" in done.stderr
    assert f"want {call.LOAD.types}" in done.stderr


def test_the_entry_of_a_weight_begins_with_its_data(device, tmp_path):
    """The framework takes a dictionary's first value, whichever it is."""
    data = bytearray(b"\x01" * 64)
    with device.runtime.pool():
        assert device.runtime.begins_with_data(device._entry(memoryview(data)))


def test_no_neural_engine_is_told_with_the_ways_out(monkeypatch):
    monkeypatch.delenv("ORION_ANE_LIBRARIES")
    with pytest.raises(BackendError, match="there is no Neural Engine: got linux\n  hint: take"):
        libraries()


def test_the_path_is_the_frameworks_own(device, spooled, tmp_path):
    model = spooled(device, scaled(2))
    with device.runtime.pool():
        told = device.runtime.text(device.send(call.DIRECTORY, model._of))
    assert model.directory == Path(told)
    model.close()
