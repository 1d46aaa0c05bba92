from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from toys import VOCAB, lost, toy_gpt2, toy_llama

import orion_ane
from orion_ane.engine.macs import products
from orion_ane.errors import BackendError, ConfigError, DataError
from orion_ane.generate.kv_cache import KVCache
from orion_ane.generate.programs import Programs
from orion_ane.generate.session import MIN_CACHED, Session
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.nn.blocks import Precision
from orion_ane.runtime.registry import backend
from orion_ane.types import DType

FP32 = Precision(DType.FP32, DType.FP32)
CACHE_SPLITS = 1e-4  # case G19


@pytest.fixture(scope="module", params=[toy_gpt2, toy_llama], ids=["gpt2", "llama"])
def checkpoint(request, tmp_path_factory):
    return load_checkpoint(request.param(tmp_path_factory.mktemp("toy"), context=200))


def programs(checkpoint, **options):
    device = backend(options.pop("device", "cpu"))
    precision = options.pop("precision", FP32)
    decoder = decoder_of(checkpoint.config)
    return Programs(decoder, checkpoint.tensors, device, precision=precision, **options)


def ids_of(count):
    return np.random.default_rng(2).integers(0, VOCAB, count).tolist()


@pytest.mark.parametrize("splits", [(1,) * 9, (4, 5), (8, 1), (33, 1, 40, 126)])
def test_any_way_to_cut_a_sequence_gives_its_logits_G19(checkpoint, splits):
    ids = ids_of(sum(splits))
    whole = Session(programs(checkpoint)).append(ids, all_logits=True)
    session = Session(programs(checkpoint))
    start, rows = 0, []
    for count in splits:
        rows.append(session.append(ids[start : start + count], all_logits=True))
        start += count
    assert np.concatenate(rows) == pytest.approx(whole, abs=CACHE_SPLITS)


def test_the_last_logits_are_those_of_the_last_position_G03(checkpoint):
    ids = ids_of(7)
    rows = Session(programs(checkpoint)).append(ids, all_logits=True)
    last = Session(programs(checkpoint)).append(ids)
    assert last.shape == (VOCAB,)
    assert last == pytest.approx(rows[-1], abs=CACHE_SPLITS)
    assert int(last.argmax()) == int(rows[-1].argmax())


def test_layers_may_be_spread_over_programs(checkpoint):
    ids = ids_of(10)
    one = Session(programs(checkpoint))
    split = Session(programs(checkpoint, layers_per_program=1))
    assert (one.append(ids) == split.append(ids)).all()
    assert (one.evaluations, split.evaluations) == (2, 3)
    assert one.weight_bytes == split.weight_bytes


def test_a_run_reads_the_keys_and_values_before_it(checkpoint):
    made = programs(checkpoint)
    session = Session(made)
    session.append(ids_of(3))
    assert session.cache_bytes == 0
    session.append(ids_of(2))
    session.append(ids_of(1))
    size = made.precision.compute.numpy.itemsize
    numbers = 2 * checkpoint.config.layers * made.decoder.kv_channels
    assert session.cache_bytes == (3 + 5) * numbers * size


def test_the_programs_of_some_layers_share_one_buffer_whatever_the_bucket(checkpoint):
    made = programs(checkpoint)
    kernels = [made.body(made.slices[0], lanes, 64) for lanes in (1, 32)]
    first, second = (next(iter(k.program.weights.values())) for k in kernels)
    assert first is second


def test_layers_part_where_a_file_is_full_W11(checkpoint):
    whole = programs(checkpoint)
    layer = whole.body(whole.slices[0], 1, 64).weight_bytes // 2
    assert whole.slices == [range(2)]
    assert programs(checkpoint, file_room=2 * layer).slices == [range(2)]
    assert programs(checkpoint, file_room=2 * layer - 1).slices == [range(1), range(1, 2)]


def test_lanes_come_in_buckets(checkpoint):
    narrow, wide = programs(checkpoint), programs(checkpoint, min_lanes=32)
    counts = (1, 2, 32, 33, 129, 5000)
    assert [narrow.lanes_for(n) for n in counts] == [1, 32, 32, 64, 256, 512]
    assert [wide.lanes_for(n) for n in counts] == [32, 32, 32, 64, 256, 512]


def test_a_one_token_run_in_spare_lanes_equals_the_run_of_one_lane_A05(checkpoint):
    fp16 = Precision(DType.FP16, DType.FP16)
    narrow = programs(checkpoint, device="emulator", precision=fp16)
    wide = programs(checkpoint, device="emulator", precision=fp16, min_lanes=32)
    rows = [Session(p).append([5]) for p in (narrow, wide)]
    assert rows[1] == pytest.approx(rows[0], abs=0.02)


def test_by_a_device_s_own_arithmetic_the_bucket_does_not_show_at_all(checkpoint):
    """More lanes, and more room in the cache, for the same runs."""
    ids, fp16 = ids_of(40), Precision(DType.FP16, DType.FP16)
    found = []
    for lanes, expect in ((1, 0), (32, 0), (32, 190)):
        made = programs(checkpoint, device="emulator", precision=fp16, min_lanes=lanes)
        session = Session(made, expect=expect)
        rows = [session.append(ids[:33], all_logits=True), session.append(ids[33:34])[None]]
        found.append(np.concatenate([*rows, session.append(ids[34:], all_logits=True)]))
    assert (found[1] == found[0]).all()
    assert (found[2] == found[0]).all()


def test_the_cache_grows_as_it_fills_and_keeps_what_it_has(checkpoint):
    made = programs(checkpoint)
    session = Session(made)
    ids = ids_of(MIN_CACHED + 10)
    stepwise = [session.append([i]) for i in ids]
    whole = Session(made).append(ids, all_logits=True)
    assert np.stack(stepwise) == pytest.approx(whole, abs=CACHE_SPLITS)
    capacities = {key[3] for key in made._kernels if key[0] == "body"}
    assert capacities == {0, MIN_CACHED, 2 * MIN_CACHED}  # 0: the whole at once sees no cache


def test_the_whole_context_can_be_filled_and_no_more(checkpoint):
    session = Session(programs(checkpoint))
    session.append(ids_of(199))
    session.append([1])
    with pytest.raises(ConfigError, match="201 tokens, want at most 200"):
        session.append([1])


@pytest.mark.parametrize("bad", [[], [-1], [VOCAB], [3, VOCAB + 4]])
def test_ids_that_are_not_tokens_are_refused(checkpoint, bad):
    with pytest.raises(DataError):
        Session(programs(checkpoint)).append(bad)


def test_a_model_without_a_tokenizer_takes_ids(tmp_path):
    folder = toy_gpt2(tmp_path)
    (folder / "tokenizer.json").unlink()
    with orion_ane.load(str(folder), device="cpu") as model:
        got = model.generate([1, 2, 3], max_tokens=4)
        assert len(got.ids) == 4 or got.finish_reason == "stop"
        assert got.text == ""
        with pytest.raises(DataError, match="no tokenizer"):
            model.generate("text")


def test_weights_that_overflow_fp16_are_named_N17(tmp_path):
    folder = toy_gpt2(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["h.0.mlp.c_fc.weight"][0, 0] = 1e6
    save_file(tensors, folder / "model.safetensors")
    with orion_ane.load(str(folder), device="emulator") as model:
        assert any("layers.0.w1" in note and "overflow" in note for note in model.notes)
    with orion_ane.load(str(folder), device="cpu") as model:
        assert model.notes == ()


@pytest.mark.parametrize(
    "prompt", [b"ab", None, 5, {"a": 1}, [1.5], [[1], "a", None], [True], np.ones((2, 2), int)]
)
def test_what_is_no_prompt_is_refused(tmp_path, prompt):
    with orion_ane.load(str(toy_gpt2(tmp_path)), device="cpu") as model:
        for use in (model.generate, model.logits, model.loss):
            with pytest.raises(DataError, match="neither text nor ids"):
                use(prompt)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": None},
        {"max_tokens": "5"},
        {"max_tokens": 8.0},
        {"stop": 7},
        {"top_k": 1.5},
        {"temperature": "1"},
        {"top_p": None},
    ],
)
def test_options_of_another_type_are_refused(tmp_path, options):
    with orion_ane.load(str(toy_gpt2(tmp_path)), device="cpu") as model:
        with pytest.raises(ConfigError):
            model.generate([1], **options)
        with pytest.raises(ConfigError):
            model.generate([[1], [2]], **options)


def test_ids_may_be_numpy_s_or_a_tuple(tmp_path):
    with orion_ane.load(str(toy_gpt2(tmp_path)), device="cpu") as model:
        want = model.generate([1, 2, 3], max_tokens=3).ids
        for ids in (np.array([1, 2, 3]), (1, 2, 3), [np.int64(1), 2, 3], range(1, 4)):
            assert model.generate(ids, max_tokens=3).ids == want
        assert "2 layers of 32 channels" in repr(model)


def test_a_closed_model_does_not_run(tmp_path):
    with orion_ane.load(str(toy_gpt2(tmp_path)), device="cpu") as model:
        model.generate([1], max_tokens=1)
    model.close()
    for use in (model.generate, model.logits, model.loss):
        with pytest.raises(BackendError, match="closed"):
            use([1, 2])


def test_ids_that_only_pad_the_vectors_print_nothing(tmp_path):
    folder = toy_gpt2(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    padding = np.random.default_rng(0).normal(size=(63, 32)).astype(np.float32)
    tensors["wte.weight"] = np.concatenate([tensors["wte.weight"], padding])
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": VOCAB + 63}
    (folder / "config.json").write_text(json.dumps(config))
    with orion_ane.load(str(folder), device="cpu") as model:
        got = model.generate([97, VOCAB + 5], max_tokens=40, temperature=3.0)
        assert max(got.ids) >= VOCAB
        assert got.text == model.tokenizer.decode(i for i in got.ids if i < VOCAB)


def test_a_model_can_be_verified_from_another_folder(tmp_path, monkeypatch):
    toy_gpt2(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    with orion_ane.load("m", device="emulator") as model:
        monkeypatch.chdir("/")
        assert model.generate([1], max_tokens=2, verify=True).verification is not None


def test_what_is_prepared_needs_no_compile_when_it_runs(checkpoint):
    device = backend("cpu")
    decoder = decoder_of(checkpoint.config)
    made = Programs(decoder, checkpoint.tensors, device, precision=FP32)
    session = Session(made, expect=100)
    session.prepare(40, 1)
    compiled = device.compiles
    session.append(ids_of(40))
    session.append([1])
    assert device.compiles == compiled == len(made)


def test_a_vocabulary_longer_than_an_axis_leaves_by_several_ports(checkpoint, monkeypatch):
    whole = Session(programs(checkpoint)).append([5, 7], all_logits=True)
    monkeypatch.setattr("orion_ane.models.decoder.MOST_TOKENS", 100)
    made = programs(checkpoint)
    ports = {port.name: port.type.shape[1] for port in made.head(1).program.outputs}
    assert ports == {"logits_0": 86, "logits_1": 86, "logits_2": 85}
    got = Session(made).append([5, 7], all_logits=True)
    assert got == pytest.approx(whole, abs=1e-5)


def test_every_target_gives_the_same_logits(checkpoint):
    """However its surfaces are bound, and whatever sizes it wants of them."""
    fp16 = Precision(DType.FP16, DType.FP16)
    ids = ids_of(40)
    want = None
    for target in ("strict", "m1", "m5", "paper"):
        device = backend("emulator", target=target)
        decoder = decoder_of(checkpoint.config)
        made = Programs(decoder, checkpoint.tensors, device, precision=fp16, min_lanes=32)
        session = Session(made)
        got = np.stack([session.append(ids), session.append([3])])  # without a cache, and with one
        want = got if want is None else want
        assert got == pytest.approx(want, abs=0.02), target


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_a_cache_by_position_begins_with_a_line_of_memory(dtype):
    """A vector of keys that lies in two lines is read twice: 1.5 % of a token."""
    cache = KVCache(3, 40, dtype, by_position=True)
    for capacity in (64, 128, 1000):
        cache.reserve(capacity)
        first = min(port.ctypes.data for port in cache.ports.values())
        assert first % 64 == 0
        assert all(port.shape == (1, 40, 1, capacity) for port in cache.ports.values())


def test_lanes_without_a_token_are_all_alike_and_computed_once(checkpoint, monkeypatch):
    half = Precision(DType.FP16, DType.FP16)
    session = Session(programs(checkpoint, device="emulator", precision=half))
    session.append(ids_of(3))
    run, computed = products._run, []
    monkeypatch.setattr(
        products, "_run", lambda w, x, *rest: computed.append(x.shape[1]) or run(w, x, *rest)
    )
    for count in (1, 2, 1):
        session.append(ids_of(count))
    assert session.length == 7
    assert max(computed) == 3


@pytest.mark.parametrize(("device", "numerics"), [("cpu", "fp32"), ("emulator", "fp16")])
def test_a_model_with_a_number_that_is_none_has_the_logits_that_come_of_it(
    device, numerics, tmp_path
):
    """As torch's: they are what was computed, without a warning, and no text is made of them."""
    with orion_ane.load(str(lost(tmp_path / "lost")), device=device, numerics=numerics) as model:
        assert np.isnan(model.logits([1, 2, 3])).any()
        assert np.isnan(model.loss([1, 2, 3]))
        with pytest.raises(BackendError, match="logits: not finite"):
            model.generate([1, 2, 3], max_tokens=1)
