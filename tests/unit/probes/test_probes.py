"""Probes find the world that the emulator is switched to."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from orion_ane.ane.limits import LIMIT_BY_CODE
from orion_ane.ane.numerics import NUMERICS
from orion_ane.ane.targets import TARGETS, Behaviour, Target
from orion_ane.mil import DIALECTS, parse
from orion_ane.probes import PROBES, Session, document, passes, probe
from orion_ane.probes.computes import simple
from orion_ane.probes.numbers import PUBLISHED
from orion_ane.probes.order import binding_of
from orion_ane.probes.probe import Finding, Verdict
from orion_ane.runtime.backends.emulator import Emulator
from orion_ane.runtime.backends.neural_engine.process import WorkerLostError

FREE = Target("free", frozenset(), numerics="m4")
ORDERS = {"ANE003", "ANE019", "ANE133", "ANE134", "ANE135", "ANE136"}
EVERY_ORDER = frozenset(ORDERS)


def session(world: Target, device=Emulator) -> Session:
    """A device in a world whose clock makes an hour of every look at it."""
    ticks = count(0, 3600)
    return Session(
        lambda: device(target=world, checks=False, threads=1, clock=lambda: float(next(ticks)))
    )


def asked(world: Target, *names: str, device=Emulator):
    return probe(session(world, device), [PROBES[name] for name in names or PROBES])


def words(findings) -> dict[str, str]:
    return {finding.probe.name: finding.verdict.word for finding in findings}


def values(numerics) -> dict[str, object]:
    return {name: rule.value for name, rule in numerics.rules()}


@pytest.mark.parametrize("name", TARGETS)
def test_probes_find_every_built_in_target(name, tmp_path):
    """Orders aside, which a target holds more of than one device can have."""
    world, findings = TARGETS[name], asked(TARGETS[name])
    found = document(findings)
    assert passes(findings) == ()
    assert not any(finding.has_failed for finding in findings)
    for code, holds in found["limits"].items():
        if code not in ORDERS | {"ANE005", "ANE165"}:
            assert holds == (code in world.limits), code
    assert {**vars(world.behaviour), **found["behaviour"]} == vars(world.behaviour)
    expected = values(world.arithmetic)
    made = NUMERICS[found["numerics"]].switched(**found["arithmetic"])
    assert values(made) == expected


DECIDED = {
    "ANE001": "concat",
    "ANE002": "output_order",
    "ANE004": "small_surfaces",
    "ANE010": "gelu",
    "ANE012": "in_place",
    "ANE018": "input_order",
    "ANE101": "many_weights",
    "ANE102": "many_weights",
    "ANE103": "rsqrt",
    "ANE104": "fp32_ports",
    "ANE105": "inverse",
    "ANE109": "computes",
    "ANE111": "two_inputs",
    "ANE115": "small_surfaces",
    "ANE116": "small_surfaces",
    "ANE131": "defaults",
    "ANE132": "row_stride",
    "ANE138": "flags",
    "ANE139": "concat",
    "ANE155": "fp32_ports",
    "ANE172": "slice_clamp",
    "ANE194": "softmax_axes",
    "ANE195": "channel_reduction",
    "ANE218": "many_weights",
}


@pytest.mark.parametrize("code", DECIDED)
def test_a_row_that_holds_is_found_and_no_other(code):
    found = document(asked(replace(FREE, limits=frozenset({code})), DECIDED[code]))["limits"]
    others = {"ANE172": {"ANE173"}}.get(code, set())
    assert {row for row, holds in found.items() if holds} == {code} | others


def test_every_row_that_a_probe_decides_is_in_the_table():
    every = {code for one in PROBES.values() for code in one.holds}
    assert every <= set(LIMIT_BY_CODE)


def test_a_device_without_limits_is_found_to_have_none():
    findings = asked(FREE)
    assert not any(document(findings)["limits"].values())
    assert document(findings)["numerics"] == "m4"
    assert words(findings)["budget"] == "more than 256"


@pytest.mark.parametrize("binding", ["names", "names@output", "sizes", "declared"])
def test_each_order_of_surfaces_is_found(binding):
    world = replace(FREE, limits=EVERY_ORDER, behaviour=Behaviour(binding=binding))
    findings = asked(world, "input_order", "output_order")
    assert document(findings)["behaviour"] == {"binding": binding}
    assert words(findings)["input_order"] == words(findings)["output_order"] == binding


@pytest.mark.parametrize(("row", "side"), [("ANE019", "input_order"), ("ANE003", "output_order")])
def test_an_order_of_one_side_alone_is_found_to_be_that_sides(row, side):
    world = replace(FREE, limits=frozenset({row}), behaviour=Behaviour(binding="names"))
    findings = asked(world, "input_order", "output_order")
    other = {"input_order": "output_order", "output_order": "input_order"}[side]
    assert (words(findings)[side], words(findings)[other]) == ("names", "declared")
    found = document(findings)
    assert found["behaviour"] == {"binding": "names"}
    assert {code for code, holds in found["limits"].items() if holds} == {row}
    assert not any("order of their own" in reason for reason in passes(findings))


def test_two_orders_are_what_no_target_has():
    verdicts = {"input_order": "names", "output_order": "sizes"}
    findings = [
        Finding(PROBES[name], Verdict(word, behaviour={"binding": word}))
        for name, word in verdicts.items()
    ]
    want = "inputs and outputs have each an order of their own: names and sizes"
    assert want in passes(findings)


def test_sizes_from_the_largest_are_no_order_of_ours_but_equal_sizes_still_run():
    met = {"by name": "as declared", "by name@output": "as declared"}
    assert binding_of({**met, "large first": "as declared", "small first": "swapped"}) == ""
    assert binding_of({**met, "large first": "run: 0x1d", "small first": "as declared"}) == "sizes"
    assert binding_of({**met, "large first": "run: 0x1d", "small first": "run: 0x1d"}) == "declared"


@pytest.mark.parametrize("what", ["reload", "donor"])
@pytest.mark.parametrize("answer", ["old", "new", "refused"])
def test_the_weights_that_run_after_an_update_are_found(what, answer):
    world = replace(FREE, behaviour=replace(Behaviour(), **{what: answer}))
    assert document(asked(world, what))["behaviour"] == {what: answer}


def test_a_weight_of_its_own_file_each_is_no_hindrance_to_updates():
    world = replace(FREE, limits=frozenset({"ANE218"}))
    assert words(asked(world, "donor"))["donor"] == "new"


@pytest.mark.parametrize("rows", ["fails", "zeros"])
def test_what_narrow_rows_do_is_found(rows):
    behaviour = Behaviour(narrow_rows=rows)
    world = replace(FREE, limits=frozenset({"ANE132"}), behaviour=behaviour)
    assert document(asked(world, "row_stride"))["behaviour"] == {"narrow_rows": rows}


@pytest.mark.parametrize(("programs", "counted"), [(3, "loaded"), (70, "compiles"), (7, "loaded")])
def test_the_number_of_programs_is_found(programs, counted):
    behaviour = Behaviour(programs=programs, programs_are=counted)
    world = replace(FREE, limits=frozenset({"ANE005", "ANE165"}), behaviour=behaviour)
    found = document(asked(world, "budget"))
    assert found["behaviour"] == {"programs": programs, "programs_are": counted}
    assert found["limits"]["ANE165"] == (counted == "loaded")


def test_a_spent_device_is_replaced_and_every_probe_is_answered():
    """Three compiles a process, and each probe needs more."""
    behaviour = Behaviour(programs=3, programs_are="compiles")
    world = replace(FREE, limits=frozenset({"ANE005"}), behaviour=behaviour)
    names = ("two_inputs", "input_order", "output_order", "donor", "gelu", "many_weights")
    assert words(asked(world, *names)) == words(asked(FREE, *names))


# Arithmetic


@pytest.mark.parametrize("chip", ["m1", "m2", "m3", "m4", "m5"])
def test_each_chips_arithmetic_is_found(chip):
    world = replace(FREE, numerics=chip)
    findings = asked(world, "product_sums", "overflow", "slice_clamp", "special_values")
    found = document(findings)
    made = NUMERICS[found["numerics"]].switched(**found["arithmetic"])
    assert values(made) == values(world.arithmetic)
    assert document(findings, base=chip)["numerics"] == chip


@pytest.mark.parametrize(
    "switch",
    [
        ("m4", ("overflow", "final")),
        ("m4", ("subnormals", "flushed")),
        ("m3", ("conv_3x3", "winograd")),
    ],
)
def test_a_rule_with_another_answer_is_found(switch):
    chip, rule = switch
    world = replace(FREE, numerics=chip, switches=(rule,))
    found = document(asked(world, "product_sums", "overflow", "slice_clamp", "special_values"))
    made = NUMERICS[found["numerics"]].switched(**found["arithmetic"])
    assert values(made) == values(world.arithmetic)


def test_the_fingerprint_is_the_published_one():
    (_, sums) = asked(FREE, "product_sums")
    assert sums.verdict.evidence["relative error"] == PUBLISHED


def test_a_device_that_sums_in_fp32_has_no_chips_arithmetic():
    def plain(**options):
        return Emulator(target=None, threads=1)

    findings = asked(FREE, "product_sums", device=plain)
    assert words(findings)["product_sums"] == "fp32 sums"


def test_times_are_no_verdict_on_an_emulator():
    findings = asked(FREE, "dispatch", "bandwidth", "notch")
    said = list(words(findings).values())[1:]
    assert said == ["no verdict: not measured on a Neural Engine"] * 3
    assert findings[1].verdict.evidence["evaluation_ms"] > 0
    assert "limits" not in findings[3].row()["evidence"]


# What goes wrong


class Dying(Emulator):
    """Its worker ends of a gelu."""

    def compile(self, program):
        if "gelu" in program.text:
            raise WorkerLostError("compile", "the worker ended", got="SIGSEGV", may_repeat=True)
        return super().compile(program)


def test_a_probe_that_fails_has_a_verdict_and_takes_no_other_down():
    findings = {f.probe.name: f for f in asked(FREE, "concat", "gelu", "rsqrt", device=Dying)}
    assert findings["gelu"].has_failed
    assert findings["gelu"].verdict.word.startswith("failed: compile: the worker ended")
    assert findings["gelu"].verdict.limits == {"ANE010": True}
    assert [findings[name].verdict.word for name in ("concat", "rsqrt")] == ["right", "right"]


class Wrong(Emulator):
    """What it adds up is off by one."""

    def compile(self, program):
        made = super().compile(program)
        run = made.run
        made.run = lambda inputs: {key: value + 1 for key, value in run(inputs).items()}
        return made


def test_a_device_that_computes_wrong_does_not_pass():
    findings = asked(FREE, "input_order", "output_order", "donor", device=Wrong)
    assert "computes: nothing runs right" in passes(findings)
    assert "input_order: not understood" in passes(findings)


def test_nothing_passes_of_which_the_essentials_were_not_asked():
    assert "input_order: not asked" in passes(asked(FREE, "gelu"))


def test_weights_as_inputs_are_a_way_to_update_and_without_any_nothing_passes():
    names = ("input_order", "output_order", "donor", "weights_as_inputs")
    refused = replace(FREE, behaviour=Behaviour(donor="refused"))
    assert passes(asked(refused, *names)) == ()
    alone = replace(refused, limits=frozenset({"ANE111"}))
    assert [reason for reason in passes(asked(alone, *names)) if "update" in reason]


@pytest.mark.parametrize("name", DIALECTS)
def test_the_texts_of_probes_are_mil(name):
    program = simple(DIALECTS[name])
    assert parse(program.text).dialect.name == name
    (port,) = program.inputs
    assert port.type.nbytes == 49152
    x = np.ones(port.type.shape, np.float16)
    made = Emulator(target=TARGETS["strict"], threads=1).compile(program)
    np.testing.assert_array_equal(made.run({"given": x})["sum"], 4 * x)
