"""The scales of what flows back: chosen from two bounds, adjusted, kept, and shown in no bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resumed_run import CONFIG, loop_of, started
from torch_models import learnt, random_tensors, tiny_gpt2, tiny_llama

import orion_ane
from orion_ane.models.build import decoder_of
from orion_ane.train import scales, step
from orion_ane.train.batch import Batch
from orion_ane.train.checkpoint import Checkpoints
from orion_ane.train.gradients import Gradients
from orion_ane.train.loop import Loop, Plan, line_of
from orion_ane.train.network import Network
from orion_ane.train.scales import PRODUCTS, ROOM, SUMS, Extent, adjust, chosen, is_power_of_two
from orion_ane.train.state import State
from orion_ane.train.updates import updates

LANES = 8
POWERS = st.integers(-20, 20).map(lambda k: 2.0**k)


def network(config, tensors, device="cpu"):
    made = orion_ane.backend(device, threads=1)
    host = None if device == "cpu" else orion_ane.backend("cpu", threads=1)
    way = updates("auto", made, verify=False)
    return Network(decoder_of(config), tensors, way, host=host, lanes=LANES)


def rows(config, rng, count=1):
    return Batch.of(rng.integers(0, config.vocab, (count, LANES + 1)))


@pytest.mark.parametrize("config", [tiny_llama(tied=False), tiny_gpt2()])
def test_in_fp32_scales_show_in_no_bit(config, rng):
    tensors, batch = random_tensors(config, rng), rows(config, rng, 2)
    made = network(config, tensors)
    want = made.gradients([batch], tensors).arrays
    names = [stage.name for stage in made.stages]
    for drawn in ([16.0] * 3, [2.0**-9, 2.0**12, 2.0**5], [2.0**7, 1.0, 2.0**-12]):
        found = made.gradients([batch], tensors, scale=dict(zip(names, drawn, strict=True))).arrays
        assert all(array.tobytes() == want[name].tobytes() for name, array in found.items())


@given(scale=POWERS, largest=st.floats(1e-6, 1e6), product=st.floats(1e-8, 1e3))
def test_a_scale_lies_between_its_bounds_and_sums_come_first(scale, largest, product):
    """Whatever it was measured with: within a factor of two of midway."""
    found = chosen(scale, Extent(largest * scale, product * scale))
    high, low = SUMS / ROOM / largest, PRODUCTS / product
    assert is_power_of_two(found)
    bounded = scales.LEAST < found < scales.MOST
    if bounded:
        assert found <= high
        assert found > min(high, math.sqrt(high * low)) / 2


def test_where_nothing_flows_a_scale_stays():
    assert chosen(4.0, Extent(0.0, 0.0)) == 4.0
    assert chosen(4.0, Extent(1.0, 0.0)) == 4.0 * SUMS / ROOM  # every product is lost
    assert chosen(1.0, Extent(math.inf, 1.0)) == scales.LEAST
    assert chosen(4.0, Extent(1.0, math.inf)) == 4.0  # nothing is learnt: it has only to fit
    assert chosen(4.0, Extent(2.0**13, math.inf)) == 1.0


@pytest.mark.parametrize(
    ("array", "want"),
    [
        (np.array([1, -3, 2], np.float16), 3.0),
        (np.array([[1, -65504]], np.float16).T, 65504.0),
        (np.array([1, -np.inf], np.float16), math.inf),
        (np.array([np.nan, 1], np.float16), math.inf),
        (np.array([-2, 1], np.float32), 2.0),
        (np.array([np.nan, 1], np.float32), math.inf),
        (np.array([], np.float16), 0.0),
    ],
)
def test_the_largest_is_of_magnitudes_and_infinite_where_one_is_not_finite(array, want):
    assert scales.largest(array) == want


def quiet(config, rng, factor):
    """Tensors of a model whose gradients are so much smaller where they enter its layers."""
    tensors = random_tensors(config, rng)
    return {**tensors, "head": tensors["head"] * np.float32(factor)}


def test_scales_are_the_same_whatever_they_are_tried_with(rng):
    config = tiny_llama(tied=False)
    tensors, batch = random_tensors(config, rng), rows(config, rng)
    made = network(config, tensors, "emulator")
    found = made.scales(batch, tensors, start=16.0)
    assert found.keys() == {"layers.0", "layers.1"}  # the head is in fp32, on the host
    assert found == made.scales(batch, tensors, start=1.0)
    assert found == made.scales(batch, tensors, start=2.0**22)  # which overflows at first
    assert network(config, tensors).scales(batch, tensors, start=1.0) == {}


def test_chosen_scales_save_gradients_that_products_would_lose(rng):
    """A head so small that without a scale most products of the layers vanish."""
    config = tiny_llama(tied=False)
    tensors, batch = quiet(config, rng, 2.0**-14), rows(config, rng)
    _, want = learnt(config, tensors, batch.ids, batch.targets)
    made = network(config, tensors, "emulator")
    found = made.scales(batch, tensors, start=16.0)
    assert min(found.values()) >= 2.0**8
    worst = {}
    for name, scale in (("one", 1.0), ("chosen", found)):
        arrays = made.gradients([batch], tensors, scale=scale).arrays
        layers = [n for n in arrays if n.startswith("layers.")]
        worst[name] = max(
            np.linalg.norm(arrays[n] / len(batch.ids[0]) - want[n]) / np.linalg.norm(want[n])
            for n in layers
        )
    assert worst["chosen"] < 2e-2
    assert worst["one"] > 0.5


def test_what_the_device_shows_inside_counts(rng, monkeypatch):
    config = tiny_llama(tied=False)
    tensors, batch = random_tensors(config, rng), rows(config, rng)
    made = network(config, tensors, "emulator")
    found = made.scales(batch, tensors, start=1.0)
    monkeypatch.setattr("orion_ane.train.placed.shows_ranges", lambda _: False)
    hidden = made.scales(batch, tensors, start=1.0)
    assert all(found[name] <= hidden[name] for name in found)
    assert found != hidden  # inside a layer something is larger than all that leaves it


def state(**own):
    return State({}, {}, loss_scale=16.0, scales=own)


def test_only_the_stage_that_was_the_first_to_overflow_is_halved():
    now = state(a=8.0, b=4.0)
    adjust(now, Gradients({}, bad="a d_x", bad_back="a", largest={"b": 1e9}), is_bad=True)
    assert (now.scales, now.loss_scale) == ({"a": 4.0, "b": 4.0}, 16.0)
    adjust(now, Gradients({}, bad="c d_x", bad_back="c"), is_bad=True)
    assert now.scales["c"] == 8.0  # it had none of its own


def test_every_stage_is_halved_where_the_way_there_overflowed():
    now = state(a=8.0, b=2.0**-24)
    adjust(now, Gradients({}, bad="a hidden"), is_bad=True)
    assert (now.scales, now.loss_scale) == ({"a": 4.0, "b": 2.0**-24}, 8.0)


def test_a_stage_near_its_bound_is_halved_before_it_overflows():
    now = state(a=8.0, b=4.0)
    adjust(now, Gradients({}, largest={"a": 17000.0, "b": 16000.0}), is_bad=False)
    assert now.scales == {"a": 4.0, "b": 4.0}


def test_a_scale_that_is_too_high_skips_one_step_after_another_and_is_found_again():
    trainer, batches = started("emulator", steps=16)
    steps = Loop(trainer, batches, Plan()).run()
    first = next(steps)
    own = dict(trainer.state.scales)
    assert first.loss_scales == own == {"layers.0": own["layers.0"], "layers.1": own["layers.1"]}
    assert first.loss_scale == own["layers.1"]  # where gradients enter
    trainer.state.scales["layers.0"] = high = 2.0**18
    reports = list(steps)
    skipped = [r for r in reports if r.skipped]
    assert len(skipped) >= 2
    assert {r.skipped.split(" d_")[0] for r in skipped} == {"not finite: layers.0"}
    for i, report in enumerate(skipped):
        assert report.loss_scales == {"layers.0": high / 2**i, "layers.1": own["layers.1"]}
    assert reports[-1].skipped is None
    assert line_of(skipped[0], trainer)["loss_scales"]["layers.0"] == high


def test_scales_are_chosen_again_after_enough_good_steps(monkeypatch):
    monkeypatch.setattr(step, "AGAIN", 3)
    trainer, batches = started("emulator", steps=5)
    seen = []
    for report in Loop(trainer, batches, Plan()).run():
        seen.append(report.loss_scales["layers.1"])
        if report.step == 1:
            trainer.state.scales["layers.1"] = 2.0**-10
    assert seen[1:3] == [2.0**-10] * 2
    assert seen[3] > 2.0**-10


def test_a_resumed_run_has_the_scales_of_the_one_before(tmp_path):
    """Those that it would not choose itself, so that it shows."""
    trainer, batches = started("emulator", steps=4)
    trainer.state.scales = {"layers.0": 2.0**-9, "layers.1": 2.0**7}
    loop = Loop(trainer, batches, Plan(save_every=2), checkpoints=Checkpoints(tmp_path, keep=9))
    want = [report.loss for report in loop.run()]
    (tmp_path / "step-00000004").rename(tmp_path / "later")
    resumed = started("emulator", Checkpoints(tmp_path).newest(), steps=4)
    assert resumed[0].state.scales == {"layers.0": 2.0**-9, "layers.1": 2.0**7}
    assert [report.loss for report in loop_of(resumed, None).run()] == want[2:]
    same = all(
        np.array_equal(array, trainer.state.masters[name])
        for name, array in resumed[0].state.masters.items()
    )
    assert same
    assert CONFIG.layers == 2
