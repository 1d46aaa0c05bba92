"""Every gradient of every tensor, against torch's autograd in float64."""

from __future__ import annotations

import json

import numpy as np
import pytest
from torch_models import learnt, random_tensors, tiny_gpt2, tiny_llama

import orion_ane
from orion_ane.errors import ConfigError, DataError
from orion_ane.host.loss import IGNORED
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.models.weights.tensors import to_interleaved
from orion_ane.train.batch import Batch
from orion_ane.train.network import Network
from orion_ane.train.updates import Reload, updates

FP32_SUMS = 1e-5
LANES = 8
CASES = {
    "llama grouped": tiny_llama(),
    "llama untied": tiny_llama(tied=False),
    "llama one key head": tiny_llama(kv_heads=1, tied=False),
    "llama ungrouped": tiny_llama(kv_heads=4, head_dim=2),
    "llama untied ungrouped": tiny_llama(kv_heads=4, head_dim=2, tied=False),
    "gpt2": tiny_gpt2(),
    "gpt2 one head": tiny_gpt2(heads=1, layers=1),
    "gpt2 untied": tiny_gpt2(tied=False),
}


@pytest.fixture
def cpu():
    return orion_ane.backend("cpu", threads=1)


def some_rows(config, rng, count=3):
    batch = Batch.of(rng.integers(0, config.vocab, (count, LANES + 1)))
    targets = batch.targets.copy()
    targets[0, :3] = IGNORED  # so that rows have unequal numbers of targets
    return Batch(batch.ids, targets)


def gradients(config, tensors, batches, device, host=None, scale=1.0, **options):
    network = Network(
        decoder_of(config),
        tensors,
        updates("auto", device, verify=False),
        host=host,
        lanes=LANES,
        **options,
    )
    found = network.gradients(batches, tensors, scale=scale)
    network.close()
    return found, found.mean()


def distance(got, want):
    """How far apart, as a part of what is wanted."""
    return np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)


def vanishes(name):
    """A bias of keys adds the same to every score of a query, which softmax does not see."""
    return name.endswith(".bk")


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
@pytest.mark.parametrize("layers_per_stage", [1, 2])
def test_every_gradient_is_autograds(config, layers_per_stage, cpu, rng):
    tensors = random_tensors(config, rng)
    batch = some_rows(config, rng)
    want_loss, want = learnt(config, tensors, batch.ids, batch.targets)
    found, loss = gradients(config, tensors, [batch], cpu, layers_per_stage=layers_per_stage)
    assert loss == pytest.approx(want_loss, rel=1e-6)
    assert found.bad is None
    assert found.arrays.keys() == want.keys()
    for name, array in found.arrays.items():
        if vanishes(name):
            beside = np.linalg.norm(want[name.replace(".bk", ".bq")])
            assert np.linalg.norm(array) < FP32_SUMS * beside, name
        else:
            assert distance(array, want[name]) < FP32_SUMS, name


@pytest.mark.parametrize("config", [tiny_llama(), tiny_llama(tied=False), tiny_gpt2()])
@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_some_tensors_alone_can_be_learnt(config, device, cpu, rng):
    """Their gradients are what they are when all are learnt, and no other is there."""
    tensors, batch = random_tensors(config, rng), some_rows(config, rng, 2)
    host = None if device == "cpu" else cpu
    made = cpu if device == "cpu" else orion_ane.backend(device, threads=1)
    whole, _ = gradients(config, tensors, [batch], made, host=host, scale=16.0)
    names = [n for n in tensors if n.startswith("layers.1.") and n[-1] in "qnmg"]
    for own in (names, [next(iter(tensors))]):
        some = {name: tensors[name] for name in own}
        frozen = {name: array for name, array in tensors.items() if name not in own}
        found, _ = gradients(config, some, [batch], made, host=host, scale=16.0, frozen=frozen)
        assert found.arrays.keys() == set(own)
        assert found.loss == pytest.approx(whole.loss, rel=1e-6)
        for name, array in found.arrays.items():
            assert distance(array, whole.arrays[name].astype(np.float64)) < FP32_SUMS, name
    assert len(names) >= 2


def test_accumulation_weighs_by_tokens_D01(cpu, rng):
    """Three microbatches of unequal numbers of targets are the one batch of all rows."""
    config = tiny_llama()
    tensors, batch = random_tensors(config, rng), some_rows(config, rng)
    targets = batch.targets.copy()
    targets[1, 1:] = IGNORED  # one target, against eight
    whole = Batch(batch.ids, targets)
    parts = [Batch(batch.ids[i : i + 1], targets[i : i + 1]) for i in range(3)]
    one, loss = gradients(config, tensors, [whole], cpu)
    many, same = gradients(config, tensors, parts, cpu)
    want_loss, want = learnt(config, tensors, whole.ids, whole.targets)
    assert loss == same == pytest.approx(want_loss, rel=1e-6)
    for name, array in one.arrays.items():
        assert np.array_equal(array, many.arrays[name])
        assert distance(array, want[name]) < FP32_SUMS


def test_memory_of_an_earlier_step_does_not_show_in_the_next(cpu, rng):
    config = tiny_llama()
    tensors, batch = random_tensors(config, rng), some_rows(config, rng)
    way = updates("auto", cpu, verify=False)
    network = Network(decoder_of(config), tensors, way, host=None, lanes=LANES)
    fresh = network.gradients([batch], tensors)
    used = {name: np.full_like(array, np.nan) for name, array in fresh.arrays.items()}
    again = network.gradients([batch], tensors, into=used)
    network.close()
    for name, array in again.arrays.items():
        assert array is used[name]
        np.testing.assert_array_equal(array, fresh.arrays[name])


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_memory_of_an_earlier_row_does_not_show_in_the_next(device, cpu, rng):
    """Rows after others, whose memory they take, have the gradients that each has alone."""
    config = tiny_llama()
    tensors, batch = random_tensors(config, rng), some_rows(config, rng)
    made = orion_ane.backend(device, threads=1)
    host = None if device == "cpu" else cpu
    whole, _ = gradients(config, tensors, [batch], made, host=host, scale=16.0)
    sums = {name: np.zeros_like(array) for name, array in whole.arrays.items()}
    for i in range(len(batch.ids)):
        row = Batch(batch.ids[i : i + 1], batch.targets[i : i + 1])
        found, _ = gradients(config, tensors, [row], made, host=host, scale=16.0)
        for name, array in found.arrays.items():
            sums[name] += array * row.tokens
    for name, array in whole.arrays.items():
        assert distance(array * batch.tokens, sums[name].astype(np.float64)) < FP32_SUMS, name


def test_rows_without_a_target_teach_nothing_D05(cpu, rng):
    config = tiny_gpt2()
    tensors, batch = random_tensors(config, rng), some_rows(config, rng)
    nothing = Batch(batch.ids, np.full_like(batch.targets, IGNORED))
    found, loss = gradients(config, tensors, [nothing], cpu)
    assert (found.tokens, loss) == (0, 0)
    assert not any(array.any() for array in found.arrays.values())
    both, _ = gradients(config, tensors, [nothing, batch], cpu)
    alone, _ = gradients(config, tensors, [batch], cpu)
    assert both.tokens == alone.tokens
    assert all(np.array_equal(both.arrays[n], a) for n, a in alone.arrays.items())


def test_the_shift_is_within_a_row_D07():
    batch = Batch.of([[1, 2], [3, 4]])
    assert batch.targets.tolist() == [[2], [4]]
    assert batch.ids.tolist() == [[1], [3]]


@pytest.mark.parametrize("config", [tiny_llama(), tiny_llama(tied=False), tiny_gpt2()])
def test_the_emulator_learns_what_fp16_can(config, cpu, rng):
    """Layers in a device's own arithmetic, the head in fp32: gradients to about 2⁻⁸ of each."""
    tensors = random_tensors(config, rng)
    batch = some_rows(config, rng)
    _, want = learnt(config, tensors, batch.ids, batch.targets)
    device = orion_ane.backend("emulator", threads=1)
    found, _ = gradients(config, tensors, [batch], device, host=cpu, scale=16.0)
    worst = {
        name: distance(array, want[name])
        for name, array in found.arrays.items()
        if not vanishes(name)
    }
    assert max(worst.values()) < 2e-2, worst
    assert np.median(list(worst.values())) < 1e-2, worst


def test_the_head_runs_on_the_device_where_no_host_is_given(cpu, rng):
    config = tiny_llama(tied=False)
    tensors, batch = random_tensors(config, rng), some_rows(config, rng)
    on_host, _ = gradients(config, tensors, [batch], cpu, host=orion_ane.backend("cpu", threads=1))
    on_device, _ = gradients(config, tensors, [batch], cpu, scale=1024.0)
    for name, array in on_host.arrays.items():
        assert distance(on_device.arrays[name], array.astype(np.float64)) < FP32_SUMS


def test_a_large_vocabulary_leaves_by_several_ports(cpu, rng, monkeypatch):
    monkeypatch.setattr("orion_ane.models.decoder.MOST_TOKENS", 16)
    for config in (tiny_llama(), tiny_llama(tied=False), tiny_gpt2()):
        tensors, batch = random_tensors(config, rng), some_rows(config, rng)
        _, want = learnt(config, tensors, batch.ids, batch.targets)
        found, _ = gradients(config, tensors, [batch], cpu)
        for name in ("embed", "head", "wte"):
            if name in want:
                assert distance(found.arrays[name], want[name]) < FP32_SUMS


def test_what_does_not_fit_is_refused(cpu, rng):
    config = tiny_llama()
    tensors = random_tensors(config, rng)
    way = Reload(cpu)
    with pytest.raises(ConfigError, match="seq: does not fit the model: got 17"):
        Network(decoder_of(config), tensors, way, host=None, lanes=17)
    network = Network(decoder_of(config), tensors, way, host=None, lanes=LANES)
    with pytest.raises(DataError, match="batch: another shape"):
        network.gradients([Batch.of([[1, 2, 3]])], tensors)
    with pytest.raises(DataError, match="batch: no such id: got 40, want 0 to 39"):
        network.gradients([Batch.of([[40] * (LANES + 1)])], tensors)


def test_gradients_of_a_real_model_are_the_golden_ones(data_dir, cpu):
    """Each norm, sum and corner value of stories260K, computed elsewhere in float64."""
    golden = json.loads((data_dir / "stories260K" / "golden.json").read_text())["train"]
    checkpoint = load_checkpoint(data_dir / "stories260K" / "stories260K.bin")
    c = checkpoint.config
    batch = Batch(np.array(golden["input_ids"]), np.array(golden["target_ids"]))
    network = Network(
        decoder_of(c), checkpoint.tensors, Reload(cpu), host=None, lanes=batch.ids.shape[1]
    )
    found = network.gradients([batch], checkpoint.tensors)
    assert found.mean() == pytest.approx(golden["loss"], abs=1e-6)
    names = {"tok_embeddings": "embed", "attention_norm": "attn_norm"}
    heads = {"wq": c.heads, "wk": c.kv_heads}
    for name, want in golden["grads"].items():
        at, _, last = name.rpartition(".")
        own = names.get(last, last)
        array = found.arrays[f"{at}.{own}" if at else own].astype(np.float64)
        if last in heads:
            array = to_interleaved(array, heads[last])
        assert np.linalg.norm(array) == pytest.approx(want["norm"], rel=FP32_SUMS), name
        slack = FP32_SUMS * want["norm"]
        assert array.sum() == pytest.approx(want["sum"], abs=slack * np.sqrt(array.size)), name
        corners = [*array.ravel()[:4], *array.ravel()[-4:]]
        assert corners == pytest.approx([*want["first4"], *want["last4"]], abs=slack), name
    total = np.sqrt(sum(float((a.astype(np.float64) ** 2).sum()) for a in found.arrays.values()))
    assert total == pytest.approx(golden["grad_norm_total"], rel=1e-6)
    assert len(golden["grads"]) == len(found.arrays)
