"""The emulator as a process meets it: budgets, pauses, reloads and loads, by target."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

import orion_ane.ops as o
from orion_ane.ane.limits import Symptom
from orion_ane.ane.targets import TARGETS, Behaviour, Target
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import BackendError, BudgetError, ConfigError, LimitError, MilError
from orion_ane.ir import Graph
from orion_ane.mil import Port, Program
from orion_ane.runtime import backend
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.types import DType, TensorType

OF = TensorType(DType.FP16, (1, 64, 1, 32))
ALL = [*TARGETS]
REFUSED = """func main<ios18>(tensor<fp16, [1,64,1,32]> x) {
    tensor<fp16, [1,64,1,32]> r = cast(x=x, dtype="fp17");
} -> (r);"""


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def scaled(value: float, of: Target | None = TARGETS["strict"], channels: int = 64) -> Program:
    """A convolution by `value` times the unit matrix."""
    shape = (channels, channels, 1, 1)
    x = o.input_("x", OF.with_shape((1, channels, 1, 32)))
    graph = Graph({"x": x}, {"y": o.conv1x1(x, o.weight("w", TensorType(DType.FP16, shape)))})
    array = (value * np.eye(channels, dtype=np.float16)).reshape(shape)
    return compile_graph(graph, {"w": array}, target=of)


def scale_of(executable) -> float:
    """The weight that runs: a canary."""
    (port,) = executable.program.inputs
    return float(executable.run({"x": np.ones(port.of.shape, np.float16)})["y"].flat[0])


def refused() -> Program:
    return Program(REFUSED, {}, (Port("x", "x", OF),), (Port("r", "r", OF),))


def device(of: str | Target = "strict", **options) -> Emulator:
    return Emulator(target=of, threads=1, **options)


def test_a_target_goes_by_name_file_or_itself(tmp_path):
    file = tmp_path / "mac.json"
    file.write_text('{"base": "m4"}')
    assert device("m1").target is TARGETS["m1"]
    assert device(file).target.limits == device(str(file)).target.limits == TARGETS["m4"].limits
    assert device(TARGETS["m2"]).target is TARGETS["m2"]
    assert Emulator(target=None).target is None
    with pytest.raises(ConfigError, match="no such target: got m9"):
        backend("emulator", target="m9")


def test_a_program_that_breaks_limits_is_refused_with_all_of_them():
    text = """func main<ios18>(tensor<fp16, [1,64,1,33]> b, tensor<fp32, [1,64,1,32]> a) {
        tensor<fp16, [1,64,1,33]> y = relu(x=b);
        tensor<fp16, [1,64,1,32]> z = nonesuch(x=a);
    } -> (y);"""
    wide = TensorType(DType.FP16, (1, 64, 1, 33))
    ports = (Port("b", "b", wide), Port("a", "a", OF.with_dtype(DType.FP32)))
    program = Program(text, {}, ports, (Port("y", "y", wide),))
    emulator = device()
    with pytest.raises(LimitError) as broken:
        emulator.compile(program)
    codes = {d.code for d in broken.value.diagnostics}
    assert {"ANE019", "ANE104", "ANE132", ""} <= codes
    assert Symptom.SLOW.value not in {d.symptom for d in broken.value.diagnostics}
    assert emulator.compiles == 0
    with pytest.raises(BackendError, match="compile: InvalidMILProgram"):
        device(checks=False).compile(program)


def test_without_a_target_nothing_is_refused_and_there_is_no_end():
    free = Emulator(target=None, threads=1)
    kept = [free.compile(scaled(1, None)) for _ in range(125)]
    assert free.compiles == len(kept) == 125


# Budget (cases A07, ANE005, ANE165)


@pytest.mark.parametrize("name", ALL)
def test_the_120th_program_is_refused_with_the_ways_out_A07(name):
    emulator, program = device(name), scaled(1, TARGETS[name])
    kept = [emulator.compile(program) for _ in range(119)]
    with pytest.raises(BudgetError) as full:
        emulator.compile(program)
    counts_compiles = TARGETS[name].behaviour.programs_are == "compiles"
    word = "119 compiles" if counts_compiles else "119 loaded programs"
    assert f"compile: this process has used its {word}" in str(full.value)
    for way in ("load by a donor", "pass weights as inputs", "a new process"):
        assert way in full.value.hint
    assert emulator.compiles == 119
    kept.pop().close()
    if counts_compiles:
        with pytest.raises(BudgetError):
            emulator.compile(program)
        assert scale_of(emulator.load(program, donor=kept[0])) == 1  # no compile
    else:
        assert "unload some" in full.value.hint
        kept.append(emulator.load(program, donor=kept[0]))
        with pytest.raises(BudgetError):
            emulator.load(program, donor=kept[0])


def test_a_program_that_nobody_holds_takes_no_room():
    few = replace(TARGETS["strict"], behaviour=Behaviour(programs=2))
    emulator, program = device(few), scaled(1)
    for _ in range(5):
        emulator.compile(program)
        gc.collect()
    first, second = emulator.compile(program), emulator.compile(program)
    first.close()
    first.close()
    assert scale_of(emulator.compile(program)) == scale_of(second) == 1


@pytest.mark.parametrize("counted", ["loaded", "compiles"])
def test_a_program_that_cannot_be_loaded_takes_no_room(counted):
    behaviour = Behaviour(programs=1, programs_are=counted)
    emulator, program = device(replace(TARGETS["strict"], behaviour=behaviour)), scaled(1)
    for _ in range(3):
        with pytest.raises(MilError):
            emulator.compile(replace(program, inputs=()))
    emulator.compile(program)


def test_a_target_without_the_rows_has_no_budget():
    free = Target("free", frozenset(), behaviour=Behaviour(programs=1))
    emulator = device(free)
    assert [scale_of(emulator.compile(scaled(1, None))) for _ in range(3)] == [1, 1, 1]


# Pacing (case A19, ANE166)


def test_a_compile_soon_after_a_failed_one_is_refused_by_name_A19():
    clock = Clock()
    emulator = device(checks=False, clock=clock)
    with pytest.raises(BackendError, match="InvalidMILProgram"):
        emulator.compile(refused())
    clock.now += 14.5
    with pytest.raises(BackendError) as soon:
        emulator.compile(scaled(1))
    assert "failed a moment ago: got 14.5 s, want at least 15 s" in str(soon.value)
    assert "wait 0.5 s, or go on in a new process" in soon.value.hint
    clock.now += 0.5
    assert scale_of(emulator.compile(scaled(1))) == 1
    assert scale_of(emulator.compile(scaled(1))) == 1


def test_what_is_refused_before_the_device_sees_it_is_no_failed_compile():
    emulator = device(clock=Clock())
    with pytest.raises(LimitError):
        emulator.compile(refused())
    assert scale_of(emulator.compile(scaled(1))) == 1


def test_the_papers_device_needs_no_pause():
    emulator = device("paper", checks=False, clock=Clock())
    with pytest.raises(BackendError):
        emulator.compile(refused())
    assert scale_of(emulator.compile(scaled(1, TARGETS["paper"]))) == 1


# Reload (case A09, ANE007)


@pytest.mark.parametrize("name", ALL)
def test_which_weights_run_after_a_reload_is_the_targets_A09(name):
    of = TARGETS[name]
    emulator = device(name)
    old, new = scaled(1, of, 512), scaled(2, of, 512)  # so large that it is read where it lies
    (path,) = old.weights
    files = {path: bytearray(old.weights[path])}
    executable = emulator.compile(replace(old, weights=files, digests={}))
    files[path][:] = new.weights[path]  # overwritten, and nothing else
    assert scale_of(executable) == 1
    executable.reload(new.weights)
    assert scale_of(executable) == (2 if of.behaviour.reload == "new" else 1)
    assert executable.program.weights_key == new.weights_key
    donated = emulator.load(new, donor=executable)
    assert scale_of(donated) == 2
    assert (emulator.compiles, emulator.loads) == (1, 1)


def test_paper_alone_takes_a_reload():
    assert [n for n in ALL if TARGETS[n].behaviour.reload == "new"] == ["paper"]


def test_a_reload_may_be_refused():
    of = replace(TARGETS["strict"], behaviour=Behaviour(reload="refused"))
    executable = device(of).compile(scaled(1))
    with pytest.raises(BackendError, match="reload: the device refuses it"):
        executable.reload(scaled(2).weights)
    assert scale_of(executable) == 1


# Donors


@pytest.mark.parametrize(("answer", "runs"), [("new", 2), ("old", 1)])
def test_a_donor_gives_its_code_and_by_target_its_weights(answer, runs):
    of = replace(TARGETS["strict"], behaviour=Behaviour(donor=answer))
    emulator = device(of)
    donor = emulator.compile(scaled(1))
    loaded = emulator.load(scaled(2), donor=donor)
    assert (scale_of(donor), scale_of(loaded)) == (1, runs)
    donor.close()
    assert scale_of(loaded) == runs


def test_a_donor_may_be_refused():
    of = replace(TARGETS["strict"], behaviour=Behaviour(donor="refused"))
    emulator = device(of)
    donor = emulator.compile(scaled(1))
    with pytest.raises(BackendError, match="load: the device takes no donor"):
        emulator.load(scaled(2), donor=donor)
    assert emulator.loads == 0


def test_a_thousand_steps_by_donors_are_as_many_compiles_as_programs_A07():
    emulator = device()
    loaded = [emulator.compile(scaled(0)) for _ in range(3)]
    for step in range(1, 40):  # the fewest that pass the budget
        fresh = [emulator.load(scaled(step % 7), donor=one) for one in loaded]
        for one in loaded:
            one.close()
        loaded = fresh
    assert (emulator.compiles, emulator.loads) == (3, 117)
