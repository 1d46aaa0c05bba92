"""The table of what speed is asked for: its arithmetic, and peers that fail on the way."""

from __future__ import annotations

import json

import pytest

from orion_ane.bench import inference, own_training, peers, targets, verdicts
from orion_ane.bench.harness import Row, machine
from orion_ane.errors import BackendError
from orion_ane.models.config import GPT2Config, LlamaConfig

TARGET = verdicts.Target("prefill, time", "prefill, over peer", 1.05, 0.9, is_cost=True)


def row(name, median, p10=0.5, p90=4.0, unit="x"):
    return Row(name, median, p10, p90, unit, 9, machine())


@pytest.mark.parametrize(
    ("rate", "must", "aim"), [(2.0, True, True), (1.0, True, False), (0.9, False, False)]
)
def test_a_cost_is_a_rate_upside_down_and_met_below_its_bound(rate, must, aim):
    (found,) = verdicts.judge([TARGET], [row("shape: prefill, over peer", rate)], "shape")
    assert (found.median, found.p10, found.p90) == (1 / rate, 0.25, 2.0)
    assert (found.is_met, found.is_aim_met) == (must, aim)


def test_products_are_counted_a_core():
    exact, _ = targets.of_kernels(2)
    (found,) = verdicts.judge([exact], [row(exact.row, 14.0, 10.0, 20.0, "Gproducts/s")], "")
    assert (found.median, found.is_met, found.is_aim_met) == (7.0, True, False)


def test_the_table_says_what_is_met_and_what_was_not_measured():
    one = verdicts.judge([TARGET], [row("s: prefill, over peer", 0.5)], "s")
    notes = verdicts.unmeasured([TARGET], one, "s") + verdicts.unmeasured([TARGET], one, "other")
    text = verdicts.markdown(one, [row("s: prefill, over peer", 0.5)], notes, {"load": "0.1"})
    assert "| prefill, time | s | 2 (0.25 to 2) | ≤ 1.05 | ≤ 0.9 | **no** |" in text
    assert "- not measured: prefill, time (other)" in text
    assert text.startswith("load: 0.1")
    assert json.loads(json.dumps(one[0].document()))["met"] is False


def test_a_peer_that_ends_on_the_way_is_named_once_and_asked_no_more():
    class Ends:
        name = "ends"

        def __call__(self):
            raise BackendError("peer ends", "ended")

    notes = []
    guarded = peers.Guarded(Ends(), notes)
    assert (guarded(), guarded()) == ({}, {})
    assert notes == ["peer ends: ended"]


def test_gradients_are_a_step_without_its_optimizer_and_update():
    timings = {"step_ms": 100.0, "forward_ms": 30.0, "optimizer_ms": 15.0, "update_ms": 5.0}
    found = own_training.rates_of(timings, 8)
    assert found["training"] == pytest.approx(100.0)
    assert found["update"] == pytest.approx(1600.0)


@pytest.mark.parametrize("name", ["onnxruntime_fp32", "llamacpp_f16", "llamacpp_q8_0"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_peers_with_weights_of_their_own_work_or_say_why_not(name, family):
    sizes = {"vocab": 64, "context": 64, "dim": 64, "layers": 2, "heads": 2, "hidden": 96}
    more = {"kv_heads": 2, "head_dim": 32, "tied": True}
    shape = LlamaConfig(**sizes, **more) if family == "llama" else GPT2Config(**sizes)
    work = inference.peers_work(shape, 4, 2, origin="random", threads=1)
    with peers.started([peers.find(name)], work) as (running, notes):
        if notes:
            pytest.skip(notes[0])
        assert set(running[0]()) == {"prefill", "decode"}
