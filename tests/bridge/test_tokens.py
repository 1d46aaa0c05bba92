"""Generation on device `ane`: one message a token, and the emulator's logits bit for bit."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from toys import toy_gpt2, toy_llama

from orion_ane.generate.adapters import Wardrobe
from orion_ane.generate.programs import Programs
from orion_ane.generate.session import Session
from orion_ane.lora.adapter import Adapter, LowRank, fresh
from orion_ane.lora.config import AdapterConfig
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import Checkpoint, load_checkpoint
from orion_ane.nn.blocks import Precision
from orion_ane.runtime import Backend, backend
from orion_ane.runtime.backends.neural_engine.backend import NeuralEngine
from orion_ane.types import DType

HALF = Precision(DType.FP16, DType.FP16)


@pytest.fixture(scope="module")
def emulator() -> Backend:
    return backend("emulator", target="strict")


@pytest.fixture(scope="module", params=[toy_llama, toy_gpt2], ids=["llama", "gpt2"])
def checkpoint(request, tmp_path_factory) -> Checkpoint:
    return load_checkpoint(request.param(tmp_path_factory.mktemp("toy"), context=100))


def programs(checkpoint, device, layers: int = 1) -> Programs:
    decoder = decoder_of(checkpoint.config)
    made = {"precision": HALF, "min_lanes": 32, "layers_per_program": layers}
    return Programs(decoder, checkpoint.tensors, device, **made)


def said(session: Session, device: object) -> list[np.ndarray]:
    """A prompt of two chunks, all logits of some more, and tokens until the caches have grown."""
    found = [session.append(range(3, 43)), session.append([9, 4, 7], all_logits=True)]
    found += [session.append([5]), session.append([6], all_logits=True)]
    if isinstance(device, NeuralEngine):
        os.kill(device.worker, signal.SIGKILL)  # which nobody sees
    found.append(session.append([8]))
    return [*found, session.append(range(20)), session.append([11]), session.append([12])]


def test_every_way_to_run_tokens_gives_the_emulators_logits(
    checkpoint, neural_engine, emulator, monkeypatch
):
    monkeypatch.setattr("orion_ane.generate.session.MAX_LANES", 32)
    apart = []
    for device in (emulator, neural_engine):
        made = programs(checkpoint, device)
        apart.append(said(Session(made), device))
        made.close()
    for found, want in zip(*reversed(apart), strict=True):
        np.testing.assert_array_equal(found, want)


def test_a_token_is_one_message_and_brings_no_cache_along(checkpoint, neural_engine):
    made = programs(checkpoint, neural_engine)
    session, config = Session(made), checkpoint.config
    session.append([3, 4, 5])
    session.append([6])
    copied = []
    for token in range(4):
        trips, before = neural_engine.round_trips, neural_engine.bytes_copied
        session.append([token])
        assert neural_engine.round_trips - trips == 1
        copied.append((neural_engine.bytes_copied - before) // 2)
    assert len(set(copied)) == 1
    half, lanes, cached = 2, 32, 64
    tables = 0 if config.family == "gpt2" else 2 * 4 * 1 * lanes
    kv = 2 * config.layers * made.decoder.kv_channels * lanes
    fed = config.dim * lanes + cached * lanes + tables
    assert copied[0] == half * (fed + kv + config.vocab * lanes)
    assert session.evaluations == 6 * (config.layers + 1)
    trips = neural_engine.round_trips
    session.append(range(30), all_logits=True)  # a chain of its own
    session.append(range(3), all_logits=True)
    assert neural_engine.round_trips - trips == 3
    made.close()


def test_a_session_with_more_programs_than_there_is_room_for_runs_them_one_by_one(
    checkpoint, neural_engine
):
    whole, small = programs(checkpoint, neural_engine), programs(checkpoint, neural_engine)
    small._cache.capacity = 1
    want, found = (Session(made).append([3, 4, 5]) for made in (whole, small))
    np.testing.assert_array_equal(found, want)
    whole.close()
    small.close()


def test_adapters_run_as_on_the_emulator_and_a_switch_compiles_nothing(
    checkpoint, neural_engine, emulator
):
    config = checkpoint.config
    modules = ("c_attn", "c_fc") if config.family == "gpt2" else ("q_proj", "down_proj", "lm_head")
    plain = fresh(config, AdapterConfig(4, 8.0, modules), seed=1)
    rng = np.random.default_rng(1)
    matrices = {
        path: LowRank(one.a, rng.normal(0, 0.3, one.b.shape).astype(np.float32), one.scale)
        for path, one in plain.matrices.items()
    }
    adapter = Adapter(plain.config, config, matrices, {})
    apart = []
    for device in (emulator, neural_engine):
        made = programs(checkpoint, device, layers=2)
        wardrobe = Wardrobe(made.decoder, HALF, made.slices, made.head_file)
        wardrobe.add("a", adapter)
        found = [Session(made, worn=wardrobe.wear("a")).append([3, 4, 5])]
        compiles = device.compiles
        for chosen in (None, "a", {"a": 0.5}):
            session = Session(made, worn=wardrobe.wear(chosen))
            found += [session.append([3, 4, 5]), session.append([6])]
        assert device.compiles - compiles <= 2  # of the single token, the first time
        apart.append(found)
        made.close()
    for found, want in zip(*reversed(apart), strict=True):
        np.testing.assert_array_equal(found, want)
    assert (apart[1][0] != apart[1][1]).any()
