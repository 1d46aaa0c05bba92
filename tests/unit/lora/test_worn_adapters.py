"""Adapters at run time: what is worn, switched, summed and taken off."""

from __future__ import annotations

import numpy as np
import pytest
from calls import calls_of

from orion_ane.ane.targets import TARGETS
from orion_ane.compiler import compile as compile_graph
from orion_ane.errors import BackendError, ConfigError
from orion_ane.generate.adapters import Wardrobe
from orion_ane.generate.model import Model, load
from orion_ane.lora.adapter import Adapter, LowRank, fresh, merged, scaled
from orion_ane.lora.config import AdapterConfig
from orion_ane.lora.inject import with_adapters
from orion_ane.mil import pack
from orion_ane.models.build import decoder_of
from orion_ane.models.config import GPT2Config, LlamaConfig
from orion_ane.models.scratch import draw
from orion_ane.models.weights import Checkpoint
from orion_ane.nn.blocks import Precision
from orion_ane.runtime.registry import backend
from orion_ane.types import DType

LLAMA = LlamaConfig(61, 64, 32, 2, 4, 2, 8, 48, tied=True)
GPT2 = GPT2Config(61, 64, 32, 2, 4, 64)
LINEAR = {"llama": ("q_proj", "v_proj", "down_proj"), "gpt2": ("c_attn", "c_fc")}
IDS = [3, 14, 15, 9, 26]
HALF = Precision(DType.FP16, DType.FP16)
FP16_SUMS = 1e-2  # of the largest logit: two layers whose products are rounded to fp16


def made(config, *, rank=4, alpha=8.0, seed=1, targets=None):
    adapter = fresh(config, AdapterConfig(rank, alpha, targets or LINEAR[config.family]), seed=seed)
    rng = np.random.default_rng(seed)
    matrices = {
        path: LowRank(one.a, rng.normal(0, 0.3, one.b.shape).astype(np.float32), one.scale)
        for path, one in adapter.matrices.items()
    }
    return Adapter(adapter.config, config, matrices, {})


def tensors_of(config):
    return draw(config, seed=5, spread=0.3)


def loaded(config, device="cpu", **options):
    checkpoint = Checkpoint(config, tensors_of(config), None, "fp32", "made here")
    numerics = {"numerics": "fp16"} if device == "emulator" else {}
    made_here = backend(device, threads=1, **numerics)
    return Model(checkpoint, backend=made_here, threads=1, **options)


def counts(model):
    return model._backend.compiles, model._backend.loads


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_worn_is_as_merged_L09(config):
    adapter = made(config)
    with loaded(config) as model:
        model.add_adapter(adapter, name="a")
        found = model.logits(IDS, adapter="a")
    shape, tensors = merged(adapter, tensors_of(config))
    with Model(Checkpoint(shape, tensors, None, "fp32", "x"), backend=backend("cpu")) as fused:
        want = fused.logits(IDS)
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()


def test_worn_is_as_merged_in_fp16_too_L09():
    adapter, rng = made(LLAMA), np.random.default_rng(7)
    shape, tensors = merged(adapter, tensors_of(LLAMA))
    fused = Model(
        Checkpoint(shape, tensors, None, "fp32", "x"), backend=backend("emulator", numerics="fp16")
    )
    with loaded(LLAMA, "emulator", adapters=8) as model, fused:
        model.set_adapter(model.add_adapter(adapter, name="a"))
        for _ in range(20):
            ids = rng.integers(3, LLAMA.vocab, 6).tolist()
            found, want = model.logits(ids)[-1], fused.logits(ids)[-1]
            assert np.abs(found - want).max() <= FP16_SUMS * np.abs(want).max()
            assert found.argmax() == want.argmax()


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_no_adapter_gives_the_numbers_of_the_model_alone(device):
    with loaded(LLAMA, device) as alone, loaded(LLAMA, device, adapters=8) as model:
        assert (model.logits(IDS) == alone.logits(IDS)).all()
        model.add_adapter(made(LLAMA), name="a")
        assert (model.logits(IDS, adapter="a") != alone.logits(IDS)).any()
        assert (model.logits(IDS) == alone.logits(IDS)).all()


def test_switching_stacking_and_removing_compile_and_load_nothing():
    with loaded(LLAMA, adapters=16) as model:
        model.logits(IDS)
        before = counts(model)
        for i in range(12):  # ranks, scales and targets of many kinds share the programs
            targets = (LINEAR["llama"], ("o_proj",), "all-linear")[i % 3]
            model.add_adapter(
                made(LLAMA, rank=1 + i, alpha=i + 1, seed=i, targets=targets), name=f"{i}"
            )
        seen = [model.logits(IDS, adapter=f"{i}") for i in range(12)]
        model.set_adapter({"0": 0.5, "3": -1.0})
        model.logits(IDS)
        model.set_adapter("7")
        assert (model.logits(IDS) == seen[7]).all()
        model.set_adapter(None)
        model.unload_adapter("7")
        model.logits(IDS)
        assert counts(model) == before
        assert len({array.tobytes() for array in seen}) == 12
        assert "7" not in model.adapters


def test_a_weighted_sum_is_the_sum_of_the_products():
    first, second = made(LLAMA, seed=1), made(LLAMA, rank=3, seed=2, targets=("q_proj", "up_proj"))
    with loaded(LLAMA, adapters=8) as model:
        model.add_adapter(first, name="a")
        model.add_adapter(second, name="b")
        found = model.logits(IDS, adapter={"a": 0.5, "b": 2.0})
    config, tensors = merged(scaled(first, 0.5), tensors_of(LLAMA))
    _, tensors = merged(scaled(second, 2.0), tensors)
    with Model(Checkpoint(config, tensors, None, "fp32", "x"), backend=backend("cpu")) as fused:
        want = fused.logits(IDS)
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()


def test_a_sequence_keeps_its_adapter_to_its_end():
    with loaded(LLAMA, adapters=8) as model:
        model.add_adapter(made(LLAMA, seed=1), name="a")
        model.add_adapter(made(LLAMA, seed=2), name="b")
        want = model.session(adapter="a")
        alone = [want.append(IDS), want.append([7])]
        first, second = model.session(adapter="a"), model.session(adapter="b")
        mixed = [first.append(IDS)]
        second.append(IDS)
        model.set_adapter("b")
        second.append([7])
        mixed.append(first.append([7]))
        assert all((one == other).all() for one, other in zip(alone, mixed, strict=True))


def test_a_request_may_name_its_own():
    with loaded(LLAMA, adapters=8) as model:
        model.add_adapter(made(LLAMA, seed=1), name="a")
        one = model.generate(IDS, max_tokens=6, adapter="a")
        none = model.generate(IDS, max_tokens=6)
        model.set_adapter("a")
        again = model.generate(IDS, max_tokens=6)
        bare = model.generate(IDS, max_tokens=6, adapter=None)
        assert (one.ids, none.ids) == (again.ids, bare.ids)
        assert (one.adapter, none.adapter, again.adapter, bare.adapter) == ("a", None, "a", None)


def test_choices_that_mean_nothing_are_refused():
    with loaded(LLAMA, adapters=8) as model:
        model.add_adapter(made(LLAMA), name="a")
        for bad in ("b", {}, {"b": 1.0}, {"a": float("nan")}, {"a": True}):
            with pytest.raises(ConfigError):
                model.set_adapter(bad)
        with pytest.raises(ConfigError, match="taken"):
            model.add_adapter(made(LLAMA), name="a")
        with pytest.raises(ConfigError, match="another shape"):
            model.add_adapter(made(GPT2), name="g")
        model.set_adapter("a")
        with pytest.raises(ConfigError, match="worn"):
            model.unload_adapter("a")


def test_a_larger_rank_is_said_and_compiled_once():
    with loaded(LLAMA, adapters=8) as model:
        model.add_adapter(made(LLAMA, seed=1), name="small")
        small = model.logits(IDS, adapter="small")
        model.add_adapter(made(LLAMA, rank=20, seed=2), name="large")
        assert "rank 32" in model.notes[-1]
        model.logits(IDS, adapter="large")
        before = counts(model)
        assert np.allclose(model.logits(IDS, adapter="small"), small, atol=1e-5)
        assert counts(model) == before


def test_zeros_are_shared_and_hundreds_fit_in_little():
    decoder = decoder_of(LLAMA)
    file = pack(decoder.weights(tensors_of(LLAMA), HALF))
    wardrobe = Wardrobe(decoder, HALF, [range(2)], file, rank=16)
    for i in range(300):
        wardrobe.add(f"{i}", made(LLAMA, rank=2, seed=i, targets=("q_proj",)))
    worn = [wardrobe.wear(f"{i}").body(range(2)) for i in range(300)]
    assert len({id(ports["lora_a_w1"]) for ports in worn}) == 1
    assert len({id(ports["lora_a_wq"]) for ports in worn}) == 300
    assert calls_of(lambda: [wardrobe.wear(f"{i}") for i in range(300)]) < 300 * 100


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_programs_with_ports_keep_the_limits_of_every_target(target):
    for config in (LLAMA, GPT2):
        decoder = decoder_of(config)
        file = pack(decoder.weights(tensors_of(config), HALF))
        for graph in (
            decoder.body(range(2), lanes=32, cached=64, precision=HALF),
            decoder.head(lanes=32, precision=HALF),
        ):
            compile_graph(with_adapters(graph, 16), file, target=target)


def test_an_adapter_is_laid_out_when_it_is_added_and_not_when_it_is_worn(monkeypatch):
    """Nor after others made the ports larger; a sum is made of what was laid out."""
    with loaded(LLAMA, adapters=8) as model:
        want = []
        for i in range(3):
            model.add_adapter(made(LLAMA, seed=i, alpha=3.0), name=f"{i}")
        want = [model.logits(IDS, adapter=f"{i}") for i in range(3)]
        model.add_adapter(made(LLAMA, rank=20, seed=9), name="large")

        def refused(*_):
            raise AssertionError

        with monkeypatch.context() as patched:
            for name in ("packed", "stacked", "bucket_of"):
                patched.setattr(f"orion_ane.generate.adapters.{name}", refused)
            for i in range(3):
                model.set_adapter(f"{i}")
        for i in range(3):
            assert np.allclose(model.logits(IDS, adapter=f"{i}"), want[i], atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "emulator"])
@pytest.mark.parametrize("weight", [1e6, -1e300, 10**400])
def test_a_weight_that_takes_a_sum_out_of_fp16s_range_is_refused_with_its_adapter(device, weight):
    """On every device alike, and what was worn before stays on."""
    with loaded(LLAMA, device, adapters=16) as model:
        for i, name in enumerate(("fine", "loud")):
            model.add_adapter(made(LLAMA, seed=i), name=name)
        model.set_adapter("fine")
        with pytest.raises(ConfigError, match=r"adapter loud: .*weight"):
            model.set_adapter({"fine": 1.0, "loud": weight})
        assert model.adapter == "fine"


def test_logits_that_a_sum_took_out_of_the_devices_range_name_its_adapters():
    with loaded(LLAMA, "emulator", adapters=16) as model:
        for i, name in enumerate(("fine", "loud")):
            model.add_adapter(made(LLAMA, seed=i), name=name)
        for run in (model.logits, lambda ids, **o: model.generate(ids, max_tokens=2, **o)):
            with pytest.raises(
                BackendError, match=r"not finite with adapter 1 of fine \+ 10000 of l"
            ):
                run(IDS, adapter={"fine": 1.0, "loud": 1e4})


@pytest.mark.parametrize("alpha", [1e40, 1e6])
def test_numbers_that_a_port_has_no_room_for_are_refused_when_it_is_added(alpha):
    with loaded(LLAMA, "emulator", adapters=8) as model:
        with pytest.raises(ConfigError, match=r"adapter a: numbers of .* no room"):
            model.add_adapter(made(LLAMA, alpha=alpha), name="a")
        assert model.adapters == ()
    with loaded(LLAMA, adapters=8) as model:
        if alpha < 1e30:
            model.add_adapter(made(LLAMA, alpha=alpha), name="a")
        else:
            with pytest.raises(ConfigError, match="room"):
                model.add_adapter(made(LLAMA, alpha=alpha), name="a")


@pytest.mark.parametrize("rank", [-1, 257, 1.5, "8", True, None])
def test_room_for_what_is_no_rank_is_refused(rank):
    with pytest.raises(ConfigError, match=r"adapters: no such rank: got .*, want 0 to 256, whole"):
        load(adapters=rank)
