from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import resumed_run
from resumed_run import STEPS, loop_of, started

import orion_ane
from orion_ane.errors import BackendError, CheckpointError, ConfigError
from orion_ane.host.adamw import AdamW
from orion_ane.train.checkpoint import Checkpoints, Run
from orion_ane.train.loop import Loop, Plan, line_of, settings_of, summary_of


def bits(state):
    arrays = [*state.masters.values()]
    arrays += [a for m in state.moments.values() for a in (m.mean, m.square)]
    return b"".join(a.tobytes() for a in arrays)


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_a_resumed_run_is_bit_equal_to_an_unbroken_one_C03_C05(device, tmp_path):
    whole = started(device)
    want = list(loop_of(whole, None).run())
    broken = loop_of(started(device), Checkpoints(tmp_path), save_every=3)
    first = list(itertools.takewhile(lambda r: r.step <= 5, stopping(broken, 5)))
    resumed = started(device, Checkpoints(tmp_path).newest())
    assert resumed[0].state.updates == 5
    rest = list(loop_of(resumed, Checkpoints(tmp_path), save_every=2).run())
    assert [r.step for r in rest] == [6, 7, 8, 9, 10]
    for mine, theirs in zip([*first, *rest], want, strict=True):
        assert (mine.loss, mine.lr, mine.grad_norm) == (theirs.loss, theirs.lr, theirs.grad_norm)
    assert bits(resumed[0].state) == bits(whole[0].state)


def stopping(loop, step):
    """The steps of a loop that is asked to stop after one of them."""
    return loop.run(stopped=lambda: loop.trainer.state.step == step)


def test_a_run_resumed_in_another_process_goes_on_bit_for_bit(tmp_path):
    whole = started("cpu")
    want = [r.loss for r in loop_of(whole, None).run()]
    list(stopping(loop_of(started("cpu"), Checkpoints(tmp_path)), 4))
    done = subprocess.run(
        [sys.executable, resumed_run.__file__, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert found["losses"] == want[4:]
    assert found["digest"] == resumed_run.digest(whole[0].state)


def test_every_end_is_saved_C09(tmp_path):
    kept = Checkpoints(tmp_path, keep=9)
    loop = loop_of(started("cpu", steps=17), kept, save_every=5)
    list(loop.run())
    assert loop.end == "steps"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-{n:08d}" for n in (5, 10, 15, 17)]
    other = Checkpoints(tmp_path / "b")
    loop = loop_of(started("cpu", steps=17), other, save_every=5)
    assert len(list(stopping(loop, 7))) == 7
    assert loop.end == "interrupted"
    assert other.newest().state.step == 7


def test_a_time_budget_ends_a_run(tmp_path):
    seconds = iter(range(0, 1000, 25))
    kept = Checkpoints(tmp_path)
    trainer, batches = started("cpu")
    plan = Plan(max_minutes=1.0)
    loop = Loop(trainer, batches, plan, checkpoints=kept, clock=lambda: next(seconds))
    assert len(list(loop.run())) == 3
    assert loop.end == "time"
    assert kept.newest().state.step == 3


def test_a_run_that_learns_nothing_any_more_ends_and_keeps_its_checkpoint_O09(tmp_path):
    """The scale is halved at each step that overflows; after too many of them the run ends."""
    trainer, batches = started("emulator", loss_scale=2.0**15, threads=2)
    before = {n: a.copy() for n, a in trainer.state.masters.items()}
    loop = Loop(trainer, batches, Plan(max_skips=2), checkpoints=Checkpoints(tmp_path))
    for array in trainer.state.masters.values():
        np.multiply(array, 3000, out=array)  # nothing helps against such weights
    trainer.network.renew(trainer.state.masters)
    found = []
    with pytest.raises(
        BackendError,
        match=r"step 3: 3 steps in a row were not finite: got .*\n.* device cpu, .* is kept$",
    ):
        found.extend(loop.run())
    assert len(found) == 3
    assert [r.loss_scale for r in found] == [2.0**15, 2.0**14, 2.0**13]
    assert all(r.skipped == "not finite: layers.1 hidden" for r in found)
    saved = Checkpoints(tmp_path).newest()
    assert (saved.state.skipped, saved.state.updates, saved.state.streak) == (3, 0, -3)
    assert saved.state.loss_scale == 2.0**12
    assert before.keys() == saved.state.masters.keys()


def test_a_run_that_learns_nothing_any_more_tells_what_helps_where_it_is():
    """Not what it does already, nor of a checkpoint where there is none."""
    trainer, batches = started("cpu")
    for array in trainer.state.masters.values():
        array.fill(np.nan)
    trainer.network.renew(trainer.state.masters)
    with pytest.raises(BackendError) as error:
        list(Loop(trainer, batches, Plan(max_skips=2)).run())
    assert str(error.value) == (
        "step 3: 3 steps in a row were not finite\n"
        "  hint: a lower rate may help; nothing is kept, as it would be in `checkpoint_dir`"
    )


def test_a_line_says_what_a_step_was():
    trainer, batches = started("cpu")
    loop = Loop(trainer, batches, Plan())
    lines = [json.loads(json.dumps(line_of(report, trainer))) for report in loop.run()]
    asked = (
        "step loss lr grad_norm loss_scale loss_scales skipped tokens_seen forward_ms backward_ms"
        " weight_grad_ms optimizer_ms update_ms step_ms compiles reloads device updates"
    )
    assert set(asked.split()) <= set(lines[0])
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    parts = [v for k, v in lines[-1].items() if k.endswith("_ms") and k != "step_ms"]
    assert 0 < sum(parts) <= lines[-1]["step_ms"] * 1.001
    summary = summary_of(loop, lines[0], lines[-1])
    assert (summary["type"], summary["ended"], summary["step"]) == ("summary", "steps", STEPS)


def test_only_a_constant_rate_lets_a_run_grow():
    trainer, batches = started("cpu")
    assert "steps" in settings_of(trainer.recipe, batches, Plan())["schedule"]
    constant, _ = started("cpu", shape="constant")
    assert "steps" not in settings_of(constant.recipe, batches, Plan())["schedule"]


@pytest.mark.parametrize(
    "bad", [{"grad_accum": 0}, {"save_every": -1}, {"max_minutes": 0.0}, {"max_skips": -1}]
)
def test_plans_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError):
        Plan(**bad)


def test_the_device_that_fails_leaves_a_whole_step(tmp_path, monkeypatch):
    trainer, batches = started("cpu")
    loop = Loop(trainer, batches, Plan(), checkpoints=Checkpoints(tmp_path))
    steps = loop.run()
    next(steps)
    next(steps)
    cursor = batches.cursor["drawn"]

    def fails(*_: object, **__: object) -> None:
        raise BackendError("run", "the device is gone")

    monkeypatch.setattr(trainer.network, "gradients", fails)
    with pytest.raises(BackendError, match="the device is gone"):
        next(steps)
    saved = Checkpoints(tmp_path).newest()
    assert (saved.state.step, saved.cursor["drawn"]) == (2, cursor)
    assert np.array_equal(saved.state.masters["embed"], trainer.state.masters["embed"])
    assert orion_ane.backend("cpu").compiles == 0


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("breaks", [RuntimeError, KeyboardInterrupt])
def test_a_step_that_breaks_off_while_weights_move_is_not_saved(
    breaks, saved, tmp_path, monkeypatch
):
    trainer, batches = started("cpu")
    kept = Checkpoints(tmp_path)
    loop = Loop(trainer, batches, Plan(save_every=int(saved)), checkpoints=kept)
    steps = loop.run()
    next(steps)
    next(steps)
    before = bits(trainer.state)
    left, update = [3], AdamW.update

    def fails(self, *args: object, **options: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise breaks
        update(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(AdamW, "update", fails)
        with pytest.raises(breaks):
            next(steps)
    assert bits(trainer.state) != before  # three tensors have moved, the others have not
    assert trainer.state.step == 2
    end = "; the checkpoint of step 2 is as it was" if saved else ""
    assert loop.unsaved == f"step 3 broke off while weights moved, and is not saved{end}"
    assert len(kept) == 2 * int(saved)
    with pytest.raises(CheckpointError, match="a step broke off while weights moved"):
        kept.save(Run(resumed_run.CONFIG, trainer.state))
    with pytest.raises(BackendError, match="step 3: broke off while weights moved"):
        trainer.step([])


def test_an_update_of_programs_that_fails_leaves_a_step_that_is_saved(tmp_path, monkeypatch):
    trainer, batches = started("cpu")
    loop = Loop(trainer, batches, Plan(), checkpoints=Checkpoints(tmp_path))
    steps = loop.run()
    next(steps)

    def fails(_: object) -> None:
        raise BackendError("reload", "the device is gone")

    monkeypatch.setattr(trainer.network, "renew", fails)
    with pytest.raises(BackendError, match="the device is gone"):
        next(steps)
    saved = Checkpoints(tmp_path).newest()
    assert loop.unsaved is None
    assert (saved.state.step, saved.state.updates) == (2, 2)
    assert bits(saved.state) == bits(trainer.state)
