"""Three ways in which training went wrong elsewhere, done on purpose: each has its guard."""

from __future__ import annotations

import math

import numpy as np
import pytest
from resumed_run import CONFIG, loop_of, started

import orion_ane
from orion_ane.errors import BackendError, MilError
from orion_ane.host.adamw import global_norm
from orion_ane.mil import blob
from orion_ane.train import placed
from orion_ane.train.batch import Batch
from orion_ane.train.checkpoint import Checkpoints
from orion_ane.train.loop import Loop, Plan
from orion_ane.train.updates import updates

DEVICES = ["cpu", "emulator"]


def batch():
    return Batch.of(np.random.default_rng(5).integers(0, CONFIG.vocab, (2, 9)))


def stopped_after(step, tmp_path, device):
    loop = loop_of(started(device), Checkpoints(tmp_path))
    list(loop.run(stopped=lambda: loop.trainer.state.step == step))
    return Checkpoints(tmp_path).newest()


# Stale programs after resume: programs were made first, the checkpoint was read after.


@pytest.mark.parametrize("device", DEVICES)
def test_programs_made_before_the_checkpoint_was_read_are_not_run(device, tmp_path):
    saved = stopped_after(3, tmp_path, device)
    right, _ = started(device, saved)
    want = right.step([batch()]).loss
    saved = Checkpoints(tmp_path).newest()
    wrong, _ = started(device)  # its programs have the weights of the beginning
    wrong.state = saved.state
    with pytest.raises(BackendError, match="do not have the weights that are learnt: got others"):
        wrong.step([batch()])
    with pytest.raises(BackendError, match="make it from a checkpoint's state"):
        wrong.network.loss([batch()], wrong.state.masters)
    assert wrong.state.step == 3
    wrong.network._want_fresh = lambda _: None  # without the guard it learns from another loss
    assert abs(wrong.step([batch()]).loss - want) > 1e-3


def test_masters_read_in_place_are_noticed_too(tmp_path):
    saved = stopped_after(3, tmp_path, "cpu")
    wrong, _ = started("cpu")
    for name, master in wrong.state.masters.items():
        master[...] = saved.state.masters[name]
    with pytest.raises(BackendError, match="do not have the weights that are learnt"):
        wrong.step([batch()])
    wrong.network.renew(wrong.state.masters)
    assert wrong.step([batch()]).skipped is None


def test_a_device_that_keeps_its_weights_on_reload_is_refused_with_the_reason():
    strict = orion_ane.backend("emulator", threads=1)
    with pytest.raises(BackendError, match="runs on with the weights of before") as caught:
        updates("reload", strict)
    assert "nothing would be trained" in str(caught.value)


# The fp16 cascade: one sum beyond 65,504 becomes inf, then NaN everywhere, then numbers again.


def overflowing():
    """A trainer on the emulator whose first layer's sums leave fp16, each weight within it."""
    trainer, batches = started("emulator")
    for name in ("w1", "w3", "w2"):
        trainer.state.masters[f"layers.0.{name}"] *= 300
    trainer.network.renew(trainer.state.masters)
    return trainer, batches


def test_repaired_gradients_look_like_any_others():
    """NaN to 0 and inf to 65,504: finite all over, and a step by numbers that mean nothing."""
    trainer, _ = overflowing()
    found = trainer.network.gradients([batch()], trainer.state.masters, scale=16.0)
    assert found.bad == "layers.0 hidden"
    bad = {name for name, array in found.arrays.items() if not np.isfinite(array).all()}
    assert {"embed", "layers.1.wo", "layers.1.w2", "norm"} <= bad  # all that comes after
    repaired = {
        name: np.nan_to_num(array, nan=0.0, posinf=65504, neginf=-65504)
        for name, array in found.arrays.items()
    }
    assert math.isfinite(global_norm(repaired.values()))  # nothing shows any more
    assert all(not repaired[name].any() for name in ("layers.1.wo", "layers.1.wq"))


def test_a_step_that_overflows_changes_no_bit_and_names_the_layer():
    trainer, batches = overflowing()
    before = {name: array.copy() for name, array in trainer.state.masters.items()}
    report = trainer.step([batch()])
    assert report.skipped == "not finite: layers.0 hidden"
    assert all(np.array_equal(a, before[n]) for n, a in trainer.state.masters.items())
    assert not any(m.square.any() for m in trainer.state.moments.values())
    with pytest.raises(BackendError, match="4 steps in a row were not finite"):
        list(Loop(trainer, batches, Plan(max_skips=3)).run())


# Damaged weight blobs: an update that writes a file which is not what the text asks for.


def damaged(how):
    def pack(arrays):
        file = blob.pack(arrays)
        data = bytearray(file.data)
        first = min(file.offsets.values())
        if how == "cut":
            del data[-8:]
        elif how == "sentinel":
            data[first : first + 4] = bytes(4)
        else:  # sizes and types that another writer leaves out
            data[first + 4 : first + 24] = bytes(20)
        return blob.WeightFile(file.path, bytes(data), file.offsets, file.types)

    return pack


def flipped(arrays):
    """One bit of one weight, which is a number like any other."""
    file = blob.pack(arrays)
    data = bytearray(file.data)
    data[-3] ^= 1
    return blob.WeightFile(file.path, bytes(data), file.offsets, file.types)


@pytest.mark.parametrize("device", DEVICES)
def test_a_flipped_bit_is_found_before_anything_is_saved(device, monkeypatch, tmp_path):
    loop = loop_of(started(device), Checkpoints(tmp_path))
    network = loop.trainer.network
    steps = loop.run()
    next(steps)
    with monkeypatch.context() as patched:
        patched.setattr(placed, "pack", flipped)
        patched.setattr(network, "_want_intact", lambda *_: None)  # of one stage a step
        next(steps)
    assert len(Checkpoints(tmp_path)) == 0
    with pytest.raises(BackendError, match="given other bits than were learnt: got"):
        loop.save()
    assert len(Checkpoints(tmp_path)) == 0
    loop.trainer.network.renew(loop.trainer.state.masters)  # from masters, which are whole
    loop.save()
    assert Checkpoints(tmp_path).newest().state.step == 2


@pytest.mark.parametrize("device", DEVICES)
def test_a_writer_that_always_damages_a_bit_ends_the_run_in_a_few_steps(device, monkeypatch):
    trainer, _ = started(device)
    monkeypatch.setattr(placed, "pack", flipped)
    batches = [[batch()] for _ in trainer.network.stages]
    with pytest.raises(BackendError, match="given other bits than were learnt"):
        [trainer.step(one) for one in batches]
    with pytest.raises(BackendError, match="got an update that failed midway"):
        trainer.step([batch()])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["cut", "sentinel", "header"])
def test_damaged_weights_are_not_taken(how, device, monkeypatch):
    trainer, _ = started(device)
    assert trainer.step([batch()]).skipped is None
    with monkeypatch.context() as patched:
        patched.setattr(placed, "pack", damaged(how))
        with pytest.raises((BackendError, MilError)):
            trainer.step([batch()])
    assert trainer.state.step == 2  # learnt, but not in the programs
    with pytest.raises(BackendError, match="got an update that failed midway"):
        trainer.step([batch()])
    assert trainer.state.step == 2
