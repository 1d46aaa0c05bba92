"""What passes a target's check runs right on its emulator; what fails it goes wrong as stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import faulty
import numpy as np
import pytest
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orion_ane.ane.check import UNREAD, check
from orion_ane.ane.faults import FAULTS
from orion_ane.ane.faults.kinds import Crashes, Fails, Refused
from orion_ane.ane.limits import LIMIT_BY_CODE, LIMITS, Symptom
from orion_ane.ane.targets import TARGETS, Behaviour, Target
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import BackendError, Diagnostic, LimitError
from orion_ane.mil import Program
from orion_ane.mil.blob import ALIGNMENT
from orion_ane.mil.parse import parse
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.types import Array, TensorType

BINDINGS = {
    "ANE133": "sizes",
    "ANE134": "sizes",
    "ANE135": "names@output",
    "ANE136": "names@output",
}
LARGE = {"ANE016", "ANE108", "ANE151", "ANE185"}
SMALL_CASES = [case for case in faulty.CASES if not LARGE & {*case.codes}]
FILES = {"ANE101", "ANE102", "ANE137", "ANE164"}
"""Rows about blob files; their programs are below."""


def device_of(code: str, **behaviour) -> Emulator:
    """A device with one limit, that refuses nothing itself."""
    chosen = Behaviour(binding=BINDINGS.get(code, "names"), narrow_rows="zeros", **behaviour)
    target = Target("case", frozenset({code}), behaviour=chosen)
    return Emulator(target=target, checks=False, threads=1, numerics="fp16")


def right(program: Program, feed: Mapping[str, Array]) -> dict[str, Array]:
    """What the program means."""
    return Emulator(target=None, threads=1).compile(program).run(feed)


def assert_same(got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    assert list(got) == list(want)
    for name in want:
        assert TensorType.of(got[name]) == TensorType.of(want[name])
        np.testing.assert_array_equal(got[name], want[name])


def assert_goes_wrong_as_stated(code: str, device: Emulator, program: Program, feed) -> None:
    fault = FAULTS[code]
    if isinstance(fault, Refused | Crashes):
        with pytest.raises(BackendError, match="compile: ") as refused:
            device.compile(program)
        assert fault.words in str(refused.value)
        assert device.compiles == 0
        return
    executable = device.compile(program)
    if isinstance(fault, Fails):
        with pytest.raises(BackendError, match="run: ") as failed:
            executable.run(feed)
        assert fault.words in str(failed.value)
        return
    got = executable.run(feed)  # in silence
    types = {name: TensorType.of(value) for name, value in got.items()}
    assert types == {port.name: port.of for port in program.outputs}


@st.composite
def programs(draw, code: str) -> Program:
    """The row's own case with more around it, another row's, or any typed graph."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    own = [case for case in faulty.CASES if code in case.codes]
    kind = draw(st.sampled_from(["own", "own", "other", "graph"] if own else ["other", "graph"]))
    if kind == "graph":
        graph = draw(strategies.graphs(max_nodes=8))
        return compile_graph(graph, draw(strategies.weight_feeds(graph)), target=None)
    case = draw(st.sampled_from(own if kind == "own" else SMALL_CASES))
    return faulty.program(*faulty.with_files(draw(faulty.varied(case)), rng))


@pytest.mark.parametrize("code", FAULTS)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_passes_check_runs_right_and_what_fails_it_goes_wrong(code, data):
    program = data.draw(programs(code))
    feed = faulty.feed(program, np.random.default_rng(1), data.draw(st.sampled_from([1, 5000])))
    device = device_of(code)
    found = check(program, device.target)
    if found:
        with pytest.raises(LimitError) as refused:
            Emulator(target=device.target, threads=1).compile(program)
        assert refused.value.diagnostics == found
    undefined = [f.undefined for f in parse(program.text, tolerant=True).functions.values()]
    if any(not d.code for d in found) or any(undefined):  # not valid, whatever the target holds
        with pytest.raises(BackendError, match="compile: InvalidMILProgram"):
            device.compile(program)
    elif found:
        assert_goes_wrong_as_stated(code, device, program, feed)
    elif not _has_false_references(program):
        assert_same(device.compile(program).run(feed), right(program, feed))


def _has_false_references(program: Program) -> bool:
    """A case of ANE008, which no device without that row can load."""
    return "offset=uint64(0)" in program.text


@pytest.mark.parametrize("code", sorted(set(FAULTS) - FILES))
def test_the_case_of_a_row_goes_wrong(code, rng):
    program = faulty.of_case(faulty.case_of(code), rng)
    device = device_of(code)
    found = check(program, device.target)
    assert code in {d.code for d in found}
    if any(not d.code for d in found):
        pytest.skip("a statement that no row of the op table reads: refused")
    assert_goes_wrong_as_stated(code, device, program, faulty.feed(program, rng))


@pytest.mark.parametrize("name", TARGETS)
def test_a_whole_target_goes_wrong_by_its_loudest_broken_row(name, rng):
    """Every case on every target: refused if a row refuses it, else failing if one fails it."""
    device = Emulator(
        target=replace(TARGETS[name], limits=_telling(name)),
        checks=False,
        threads=1,
        numerics="fp16",
    )
    for case in SMALL_CASES:
        program = faulty.of_case(case, rng)
        found = check(program, device.target)
        symptoms = {d.symptom for d in found}
        if symptoms & {UNREAD, Symptom.REJECTED.value, Symptom.CRASH.value}:
            with pytest.raises(BackendError, match="compile: "):
                device.compile(program)
            continue
        if _has_false_references(program) or "gone" in program.text:
            continue
        executable, feed = device.compile(program), faulty.feed(program, rng)
        fails = Symptom.FAILS.value in symptoms
        if fails or _fails_by_rows(device, found):
            with pytest.raises(BackendError, match="run: "):
                executable.run(feed)
        elif not found:
            assert_same(executable.run(feed), right(program, feed))
        else:
            assert executable.run(feed).keys() == {port.name for port in program.outputs}


def _telling(name: str) -> frozenset[str]:
    """A target's rows, but for the pause after a failed compile and what all short text breaks."""
    return TARGETS[name].limits - {"ANE166", "ANE012", "ANE004"}


def _fails_by_rows(device: Emulator, found: tuple[Diagnostic, ...]) -> bool:
    """Whether rows are not whole, and the device's answer to that is no silence."""
    is_narrow = any(d.code == "ANE132" for d in found)
    return is_narrow and device.target.behaviour.narrow_rows == "fails"


def test_every_checked_row_that_is_not_slow_has_a_fault_of_its_symptom():
    checked = {row.code for row in LIMITS if row.check and row.symptom is not Symptom.SLOW}
    assert set(FAULTS) == checked
    loud = {Refused: Symptom.REJECTED, Crashes: Symptom.CRASH, Fails: Symptom.FAILS}
    for code, fault in FAULTS.items():
        assert loud.get(type(fault), Symptom.SILENT) is LIMIT_BY_CODE[code].symptom, code


def test_the_page_names_every_row_that_is_silent_and_all_words():
    page = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text(encoding="utf-8")
    for code, fault in FAULTS.items():
        if not isinstance(fault, Refused | Crashes | Fails):
            assert code in page
        else:
            assert fault.words.removeprefix("createProgramInstanceForModel : ") in page


# What comes in silence


@dataclass(frozen=True)
class Silent:
    """What a case gives on the device.

    Attributes:
        want: from the feed and what is right.
        edit: the case's text, where its own would not show the fault.
        scale: of what is fed.
        fit: what is fed, of random values.
    """

    want: Callable[[Mapping[str, Array], Mapping[str, Array]], Mapping[str, Array]]
    edit: tuple[str, str] = ("", "")
    scale: float = faulty.WILD
    fit: Callable[[Array], Array] = np.positive


def swapped(_feed, y) -> dict[str, Array]:
    first, second = y
    return {first: y[second], second: y[first]}


def of_r(change: Callable[[Array], Array]):
    return lambda _feed, y: {"r": change(y["r"])}


def negative(_feed, y) -> dict[str, Array]:
    return {"r": -y["r"]}


def clamp(y: Array) -> Array:
    return np.where(abs(y) > 4094, np.copysign(np.float16(np.inf), y), y)


def strided(feed, _y) -> dict[str, Array]:
    """33 columns: packed by the host, stepped over by 64 in the device; and the same back."""
    host = np.zeros(64 * 64, np.float16)
    host[: 64 * 33] = feed["x"].ravel()
    device = np.zeros((64, 64), np.float16)
    device[:, :33] = np.maximum(host.reshape(64, 64)[:, :33], 0)
    return {"r": device.ravel()[: 64 * 33].reshape(1, 64, 1, 33)}


def small_surface_first(feed, _y) -> dict[str, Array]:
    """The smaller port takes the first surface, the larger one the second and zeros."""
    a = np.zeros((64, 32), np.float16)
    a[0] = feed["b"].ravel()
    b = feed["a"][0, 0]
    return {"r": (a * b).reshape(1, 64, 1, 32)}


def small_output_first(_feed, y) -> dict[str, Array]:
    a = np.zeros((64, 32), np.float16)
    a[0] = y["b"].ravel()
    return {"a": a.reshape(1, 64, 1, 32), "b": y["a"][:, :1]}


def behind_511(_feed, y) -> dict[str, Array]:
    r = y["r"].copy()
    r[:, :, 511:] = 0
    return {"r": r}


def rounded_up(_feed, y) -> dict[str, Array]:
    r = y["r"].astype(np.float32)
    return {"r": np.where(abs(r) >= 1024, r + np.sign(r), r).astype(np.float16)}


def small(x: Array) -> Array:
    """Values beside which an epsilon is seen."""
    return np.abs(x).clip(1e-3, 2e-3)


def zeros(_feed, y) -> dict[str, Array]:
    return {"r": np.zeros_like(y["r"])}


SILENT = {
    "ANE003": Silent(swapped),
    "ANE019": Silent(negative, ("mul", "sub")),
    "ANE114": Silent(of_r(lambda y: np.full_like(y, -np.inf)), scale=1),
    "ANE132": Silent(strided),
    "ANE133": Silent(small_surface_first, scale=1),
    "ANE134": Silent(small_output_first),
    "ANE135": Silent(swapped, scale=1),
    "ANE136": Silent(negative, ("add", "sub"), scale=1),
    "ANE141": Silent(
        of_r(lambda y: np.full_like(y, np.inf)),
        ("-1e9", "100000.0"),
        fit=lambda x: np.full_like(x, -50000),
    ),
    "ANE151": Silent(behind_511, scale=1),
    "ANE172": Silent(of_r(clamp)),
    "ANE173": Silent(of_r(lambda y: np.roll(y, 1))),
    "ANE177": Silent(lambda feed, _y: {"r": 1 / np.sqrt(feed["x"])}, fit=small),
    "ANE182": Silent(rounded_up, scale=1500),
    "ANE183": Silent(
        lambda feed, y: {"r": np.where(feed["x"] >= 11.09, 0, y["r"]).astype(np.float16)}, scale=9
    ),
    "ANE187": Silent(lambda feed, _y: {"r": np.floor(feed["x"])}),
    "ANE215": Silent(zeros),
    "ANE216": Silent(zeros, fit=np.abs),
    "ANE217": Silent(zeros),
}
SHOWN_BELOW = {"ANE006", "ANE008", "ANE137", "ANE184"}


def test_every_silent_row_is_shown():
    silent = {c for c in FAULTS if not isinstance(FAULTS[c], Refused | Crashes | Fails)}
    assert silent == {*SILENT, *SHOWN_BELOW}


@pytest.mark.parametrize("code", SILENT)
def test_a_silent_row_gives_the_stated_values(code, rng):
    silent = SILENT[code]
    text = faulty.case_of(code).text
    assert silent.edit[0] in text
    program = faulty.program(text.replace(*silent.edit) if silent.edit[0] else text)
    feed = {n: silent.fit(x) for n, x in faulty.feed(program, rng, silent.scale).items()}
    if any(not d.code for d in check(program, Target("none", frozenset()))):
        pytest.skip("a statement that no row of the op table reads")
    want = right(program, feed)
    with np.errstate(all="ignore"):
        wrong = silent.want(feed, want)
    got = device_of(code).compile(program).run(feed)
    assert got.keys() == wrong.keys()
    for name, value in wrong.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-3)
    assert not all(np.array_equal(got[name], want[name]) for name in want)


@given(names=st.permutations(["a", "b", "b2"]), binding=st.sampled_from(["names", "names@output"]))
def test_surfaces_meet_the_ports_in_the_order_of_binding(names, binding):
    """Three inputs and three outputs, each 1, 2 or 4 times its input, under any order of names."""
    header = ", ".join(f"{ROW} {name}" for name in names)
    lines = [f"{ROW} r{name} = mul(x={name}, y=fp16({2**i}));" for i, name in enumerate(names)]
    ends = ", ".join(f"r{name}" for name in names)
    body = "\n".join(lines)
    program = faulty.program(f"func main<ios18>({header}) {{\n{body}\n}} -> ({ends});")
    feed = {name: np.full((1, 64, 1, 32), 8.0**i, np.float16) for i, name in enumerate(names)}
    codes = frozenset({"ANE003", "ANE019", "ANE135", "ANE136"})
    target = Target("case", codes, behaviour=Behaviour(binding=binding))
    assert check(program, target), "b2 comes before b@output"
    got = (
        Emulator(target=target, checks=False, threads=1, numerics="fp16").compile(program).run(feed)
    )
    suffix = "@output" if binding == "names@output" else ""
    ordered = sorted(names, key=lambda name: name + suffix)
    seen = dict(zip(ordered, (feed[name] for name in names), strict=True))
    made = {name: seen[name] * 2**i for i, name in enumerate(names)}
    want = dict(zip(names, (made[name] for name in ordered), strict=True))
    for name in names:
        np.testing.assert_array_equal(got[f"r{name}"], want[name])


@pytest.mark.parametrize("code", ["ANE003", "ANE019", "ANE132"])
def test_a_behaviour_shows_only_where_the_target_holds_its_row(code, rng):
    program = faulty.of_case(faulty.case_of(code), rng)
    feed = faulty.feed(program, rng)
    assert_same(device_of("ANE006").compile(program).run(feed), right(program, feed))


def test_rows_below_64_bytes_are_zeros_or_fail(rng):
    text = next(c.text for c in faulty.CASES if "6]> r = slice_by_index" in c.text)
    program = faulty.program(text)
    feed = faulty.feed(program, rng)
    got = device_of("ANE132").compile(program).run(feed)
    assert_same(got, {"r": np.zeros((1, 64, 1, 6), np.float16)})
    target = Target("case", frozenset({"ANE132"}), behaviour=Behaviour(narrow_rows="fails"))
    executable = Emulator(target=target, checks=False).compile(program)
    with pytest.raises(BackendError, match=r"run: ANEProgram.*status=0x1d : Program Inference"):
        executable.run(feed)


def test_a_fused_mask_is_ignored(rng):
    program = faulty.program(faulty.case_of("ANE006").text)
    feed = faulty.feed(program, rng)
    maskless = faulty.program(program.text.replace(", attn_mask=m", ""))
    got = device_of("ANE006").compile(program).run(feed)
    assert_same(got, right(maskless, feed))
    assert not np.array_equal(got["r"], right(program, feed)["r"])


def test_activations_over_4094_are_infinite_where_they_meet_int8(rng):
    program = faulty.of_case(faulty.case_of("ANE184"), rng)
    if check(program, Target("none", frozenset())):
        pytest.skip("a statement that no row of the op table reads")
    feed = faulty.feed(program, rng)
    feed["x"][0, :, 0, 3] = 5000
    got, want = device_of("ANE184").compile(program).run(feed), right(program, feed)
    assert not np.isfinite(got["r"][..., 3]).any()
    np.testing.assert_array_equal(got["r"][..., :3], want["r"][..., :3])


# Files

PATH = "@model_path/weights/w.bin"
ROW = "tensor<fp16, [1,64,1,32]>"


def sums(offsets: Mapping[str, list[int]], more: str = "") -> str:
    """x and a weight of each place, added up."""
    places = [(path, offset) for path, found in offsets.items() for offset in found]
    lines, last = [], "x"
    for i, (path, offset) in enumerate(places):
        blob = f'BLOBFILE(path=string("{path}"), offset=uint64({offset}))'
        lines.append(f"{ROW} w{i} = const()[val={ROW}({blob})];")
        lines.append(f"{ROW} s{i} = add(x={last}, y=w{i});")
        last = f"s{i}"
    body = "\n".join([*lines, more, f"{ROW} r = identity(x={last});"])
    return f"func main<ios18>({ROW} x) {{\n{body}\n}} -> (r);"


def file_of(*arrays: Array) -> tuple[bytes, list[int]]:
    text = sums({PATH: [64] * len(arrays)})
    _, files = faulty.with_files(text, np.random.default_rng(0))
    data = bytearray(files[PATH])
    step = len(data[ALIGNMENT:]) // len(arrays)
    offsets = [ALIGNMENT + i * step for i in range(len(arrays))]
    for offset, array in zip(offsets, arrays, strict=True):
        data[offset + 64 : offset + 64 + array.nbytes] = array.tobytes()
    return bytes(data), offsets


def row_of(rng: np.random.Generator) -> Array:
    return rng.standard_normal((1, 64, 1, 32)).astype(np.float16)


@pytest.mark.parametrize(
    ("code", "count", "more"),
    [("ANE101", 17, ""), ("ANE102", 16, f"{ROW} t = mul(x=x, y=fp16(2));")],
)
def test_files_that_are_too_many_are_refused(code, count, more, rng):
    data, (offset,) = file_of(row_of(rng))
    for files in (count - 1, count):
        paths = [f"@model_path/weights/{i}.bin" for i in range(files)]
        text = sums({path: [offset] for path in paths}, more)
        program = faulty.program(text, dict.fromkeys(paths, data))
        feed = faulty.feed(program, rng)
        if files < count:
            assert_same(device_of(code).compile(program).run(feed), right(program, feed))
        else:
            assert_goes_wrong_as_stated(code, device_of(code), program, feed)


def test_weights_beyond_2_gb_fail_to_load(rng):
    data, (offset,) = file_of(row_of(rng))
    room = np.zeros((2 << 30) + 64, np.uint8)  # pages that nobody touches are not there
    room[: len(data)] = np.frombuffer(data, np.uint8)
    for size in (2 << 30, (2 << 30) + 64):
        file = memoryview(room[:size]).toreadonly()
        program = faulty.program(sums({PATH: [offset]}), {PATH: file})
        feed = faulty.feed(program, rng)
        if size == 2 << 30:
            assert_same(device_of("ANE164").compile(program).run(feed), right(program, feed))
        else:
            assert_goes_wrong_as_stated("ANE164", device_of("ANE164"), program, feed)


def test_metadata_that_gives_another_place_is_believed(rng):
    first, second = row_of(rng), row_of(rng)
    data, offsets = file_of(first, second)
    good = faulty.program(sums({PATH: offsets}), {PATH: data})
    feed = faulty.feed(good, rng)
    assert_same(device_of("ANE137").compile(good).run(feed), right(good, feed))
    places = bytearray(data)
    places[offsets[1] + 16 : offsets[1] + 24] = (128).to_bytes(8, "little")
    bad = faulty.program(good.text, {PATH: bytes(places)})
    assert_same(device_of("ANE137").compile(bad).run(feed), {"r": feed["x"] + first + first})


def test_a_reference_to_no_metadata_is_read_as_it_lies(rng):
    stored = row_of(rng)
    data, (offset,) = file_of(stored)
    program = faulty.program(sums({PATH: [offset + 64]}), {PATH: data})  # the data's own place
    feed = faulty.feed(program, rng)
    assert_same(device_of("ANE008").compile(program).run(feed), {"r": feed["x"] + stored})
    program = faulty.program(sums({PATH: [0]}), {PATH: data})
    read = np.frombuffer(data, np.float16, stored.size).reshape(stored.shape)
    with np.errstate(all="ignore"):
        want = {"r": feed["x"] + read}
    assert_same(device_of("ANE008").compile(program).run(feed), want)
    with pytest.raises(BackendError, match="compile: InvalidMILProgram"):
        device_of("ANE008").compile(faulty.program(program.text))
