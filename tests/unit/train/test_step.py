from __future__ import annotations

import json
import math

import numpy as np
import pytest
from oracles import oracle
from torch_models import learnt, random_tensors, tiny_gpt2, tiny_llama

import orion_ane
from orion_ane.errors import BackendError, ConfigError
from orion_ane.host.adamw import AdamW
from orion_ane.host.loss import IGNORED
from orion_ane.host.schedule import Schedule
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.train.batch import Batch
from orion_ane.train.state import State
from orion_ane.train.step import Recipe, Trainer

FP32_SUMS = 1e-5
LANES = 8


@pytest.fixture
def cpu():
    return orion_ane.backend("cpu", threads=1)


def recipe(**changed):
    return Recipe(**{"schedule": Schedule(1e-2, 20), **changed})


def rows(config, rng, count=2):
    return Batch.of(rng.integers(0, config.vocab, (count, LANES + 1)))


def trainer(config, rng, device, **changed):
    tensors = random_tensors(config, rng)
    return Trainer(decoder_of(config), tensors, device, recipe(**changed), seq=LANES)


def test_ten_losses_of_a_real_model_are_the_golden_ones(data_dir, cpu):
    golden = json.loads((data_dir / "stories260K" / "golden.json").read_text())["train"]
    checkpoint = load_checkpoint(data_dir / "stories260K" / "stories260K.bin")
    batch = Batch(np.array(golden["input_ids"]), np.array(golden["target_ids"]))
    how = Recipe(Schedule(5e-4, 10), AdamW(0.9, 0.95, 1e-8, 0.1), clip=None, decay_all=True)
    run = Trainer(decoder_of(checkpoint.config), checkpoint.tensors, cpu, how, seq=96)
    parts = [Batch(batch.ids[i : i + 1], batch.targets[i : i + 1]) for i in range(2)]
    losses = [run.step(parts).loss for _ in range(11)]
    assert losses == pytest.approx(golden["adamw_losses_before_step_0_to_10"], abs=2e-6)
    assert run.state.tokens_seen == 11 * 192
    assert cpu.compiles == 2 * 6 + 1  # forward and backward of six stages, and the canary


@pytest.mark.parametrize("config", [tiny_llama(), tiny_gpt2()])
def test_steps_are_those_of_torch(config, cpu, rng):
    """Five steps with clipping and decay of matrices alone, against float64."""
    torch = oracle("torch")
    run = trainer(config, rng, cpu, clip=0.5)
    theirs = {n: a.astype(np.float64) for n, a in run.state.masters.items()}
    parameters = {n: torch.nn.Parameter(torch.tensor(a)) for n, a in theirs.items()}
    decaying = [p for p in parameters.values() if p.ndim > 1]
    others = [p for p in parameters.values() if p.ndim == 1]
    groups = [
        {"params": decaying, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    for _ in range(5):
        batch = rows(config, rng)
        now = {n: p.detach().numpy() for n, p in parameters.items()}
        want, gradients = learnt(config, now, batch.ids, batch.targets)
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name])
        norm = float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), 0.5))
        adamw.step()
        report = run.step([batch])
        assert report.loss == pytest.approx(want, rel=1e-4)
        assert report.grad_norm == pytest.approx(norm, rel=1e-3)
        assert report.grad_norm > 0.5
    for name, parameter in parameters.items():
        if not name.endswith(".bk"):  # its gradient is rounding alone, and AdamW makes it large
            moved = parameter.detach().numpy() - theirs[name]
            got = run.state.masters[name] - theirs[name]
            assert np.linalg.norm(got - moved) < 2e-2 * np.linalg.norm(moved), name


def test_norms_and_biases_do_not_decay_O01(cpu, rng):
    config = tiny_gpt2()
    decays = {
        kind: {n for n, a in run.state.masters.items() if run._decays(n, a)}
        for kind, run in (
            ("default", trainer(config, rng, cpu)),
            ("no tables", trainer(config, rng, cpu, decay_embeddings=False)),
            ("all", trainer(config, rng, cpu, decay_all=True)),
        )
    }
    assert {"wte", "wpe", "layers.0.wq"} <= decays["default"]
    assert not any(n.endswith(("_g", "_b", ".b1", ".bq")) for n in decays["default"])
    assert decays["default"] - decays["no tables"] == {"wte", "wpe"}
    assert decays["all"] == set(run_names(config, rng))


def run_names(config, rng):
    return random_tensors(config, rng)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_step_without_a_finite_gradient_changes_no_bit_O07_N19(bad, cpu, rng):
    config = tiny_llama()
    run = trainer(config, rng, cpu)
    run.step([rows(config, rng)])
    run.state.masters["layers.1.wo"][0, 0] = bad
    run.network.renew(run.state.masters)
    before = {n: a.copy() for n, a in run.state.masters.items()}
    moments = {n: m.square.copy() for n, m in run.state.moments.items()}
    with np.errstate(invalid="ignore"):
        report = run.step([rows(config, rng)])
    assert report.step == 2
    assert report.skipped == "not finite: layers.1 hidden"
    assert all(np.array_equal(a, before[n], equal_nan=True) for n, a in run.state.masters.items())
    assert all(np.array_equal(m.square, moments[n]) for n, m in run.state.moments.items())
    assert (run.state.skipped, run.state.updates, run.state.step) == (1, 1, 2)
    run.state.masters["layers.1.wo"][0, 0] = 0.1
    run.network.renew(run.state.masters)
    assert run.step([rows(config, rng)]).skipped is None  # the run goes on


def test_one_number_that_is_none_is_told_by_step_layer_and_tensor_N19(cpu, rng, monkeypatch):
    """In the output of layer 3, at step 2; the run goes on, and says so in every line after."""
    config = tiny_llama(layers=5)
    run = trainer(config, rng, cpu)
    assert run.step([rows(config, rng)]).skipped is None
    before = {n: a.copy() for n, a in run.state.masters.items()}
    third = run.network._placed[3]
    forward = third.forward

    def damaged(inputs):
        outputs = forward(inputs)
        outputs["hidden"].reshape(-1)[7] = np.nan
        return outputs

    with monkeypatch.context() as patched:
        patched.setattr(third, "forward", damaged)
        report = run.step([rows(config, rng)])
    assert (report.step, report.skipped) == (2, "not finite: layers.3 hidden")
    assert all(np.array_equal(a, before[n]) for n, a in run.state.masters.items())
    assert run.step([rows(config, rng)]).skipped is None
    assert (run.state.step, run.state.skipped) == (3, 1)


def test_a_gradient_alone_that_is_not_finite_is_named(cpu, rng, monkeypatch):
    """What stages pass on is finite: only a sum on the host is not."""
    config = tiny_llama()
    run = trainer(config, rng, cpu)
    made = run.network.gradients

    def overflowed(*args, **options):
        found = made(*args, **options)
        found.arrays["layers.1.wo"][0, 0] = np.inf
        return found

    monkeypatch.setattr(run.network, "gradients", overflowed)
    assert run.step([rows(config, rng)]).skipped == "not finite: the gradient of layers.1.wo"


def test_a_step_without_a_target_is_skipped_and_counted_D05(cpu, rng):
    config = tiny_llama()
    run = trainer(config, rng, cpu)
    batch = rows(config, rng)
    report = run.step([Batch(batch.ids, np.full_like(batch.targets, IGNORED))])
    assert (report.loss, report.skipped) == (0.0, "no target counts")
    assert run.state.skipped == 1


def test_the_scale_of_the_loss_shows_in_nothing_on_fp32(cpu, rng):
    config = tiny_llama()
    tensors, batch = random_tensors(config, rng), rows(config, rng)
    ends = []
    for scale in (1.0, 2.0**10):
        how = recipe(loss_scale=scale)
        run = Trainer(decoder_of(config), tensors, cpu, how, seq=LANES)
        reports = [run.step([batch]) for _ in range(3)]
        ends.append(([r.loss for r in reports], run.state.masters))
    assert ends[0][0] == ends[1][0]
    assert all(np.array_equal(a, ends[1][1][n]) for n, a in ends[0][1].items())


@pytest.mark.parametrize("way", ["donor", "recompile", "input"])
def test_the_emulator_learns_by(way, cpu, rng):
    config = tiny_llama()
    tensors, batch = random_tensors(config, rng), rows(config, rng)
    losses = {}
    for name in ("cpu", "emulator"):
        device = cpu if name == "cpu" else orion_ane.backend("emulator", threads=1)
        run = Trainer(
            decoder_of(config),
            tensors,
            device,
            recipe(loss_scale=64.0),
            seq=LANES,
            updates="auto" if name == "cpu" else way,
            host=None if name == "cpu" else cpu,
        )
        started = device.compiles
        losses[name] = [run.step([batch]).loss for _ in range(6)]
    costs = run.updates.costs
    # What the canary cost is counted too: one program more, once.
    programs = 2 * config.layers
    counts = {"donor": costs.loads, "recompile": costs.compiles, "input": 6 * programs + 1}
    assert counts[way] == 6 * programs + 1
    assert device.compiles - started == (6 * programs if way == "recompile" else 0)
    assert costs.bytes_written > 0
    assert losses["emulator"][-1] < losses["emulator"][0] - 0.5
    assert losses["emulator"] == pytest.approx(losses["cpu"], rel=2e-2)


def test_a_device_that_keeps_its_weights_is_not_trained_on_by_reload(cpu, rng):
    device = orion_ane.backend("emulator", threads=1)
    config = tiny_llama()
    tensors = random_tensors(config, rng)
    with pytest.raises(BackendError, match=r"runs on with the weights of before.*canary gives 1"):
        Trainer(decoder_of(config), tensors, device, recipe(), seq=LANES, updates="reload")


def test_what_is_frozen_stays_and_its_programs_are_not_loaded_again(cpu, rng):
    config = tiny_llama(tied=False)
    tensors = random_tensors(config, rng)
    learnt = {"layers.1.wq", "layers.1.attn_norm", "norm"}
    frozen = {n: a for n, a in tensors.items() if n not in learnt}
    device = orion_ane.backend("emulator", threads=1)
    run = Trainer(
        decoder_of(config),
        {n: tensors[n] for n in learnt},
        device,
        recipe(loss_scale=16.0),
        seq=LANES,
        updates="donor",
        host=cpu,
        frozen=frozen,
    )
    before = {n: a.copy() for n, a in tensors.items()}
    batch = rows(config, rng)
    losses = [run.step([batch]).loss for _ in range(4)]
    assert losses[-1] < losses[0]
    assert run.state.masters.keys() == run.state.moments.keys() == learnt
    assert all(not np.array_equal(a, before[n]) for n, a in run.state.masters.items())
    assert all(np.array_equal(a, before[n]) for n, a in frozen.items())
    assert device.loads == 4 * 2 + 1  # of layer 1, there and back, and the canary
    del frozen["layers.0.wq"]
    with pytest.raises(ConfigError, match=r"tensor layers\.0\.wq: not the model's"):
        Trainer(decoder_of(config), run.state, device, recipe(), seq=LANES, frozen=frozen)


def test_tensors_of_another_model_are_named(cpu, rng):
    tensors = random_tensors(tiny_llama(), rng)
    with pytest.raises(ConfigError, match="tensor head: not the model's: want"):
        Trainer(decoder_of(tiny_llama(tied=False)), tensors, cpu, recipe(), seq=LANES)
    with pytest.raises(ConfigError, match="tensor embed: not the model's"):
        Trainer(decoder_of(tiny_llama(vocab=41)), State.fresh(tensors), cpu, recipe(), seq=LANES)


@pytest.mark.parametrize("bad", [{"clip": 0.0}, {"clip": math.inf}, {"loss_scale": 3.0}])
def test_recipes_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError):
        recipe(**bad)


def test_the_number_of_threads_shows_in_no_bit(rng):
    config = tiny_gpt2()
    tensors, batch = random_tensors(config, rng), rows(config, rng)
    ends = []
    for threads in (1, 2):
        device = orion_ane.backend("cpu", threads=threads)
        run = Trainer(decoder_of(config), tensors, device, recipe(), seq=LANES, threads=threads)
        ends.append([run.step([batch]).loss for _ in range(3)])
        run.close()
    assert ends[0] == ends[1]
