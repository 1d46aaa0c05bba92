"""Adapters that others wrote, or damaged on purpose: read as they are meant, or refused by name."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from orion_ane.errors import CheckpointError, ConfigError, OrionError
from orion_ane.lora.adapter import Adapter, LowRank, fresh, merged
from orion_ane.lora.config import AdapterConfig, read_config
from orion_ane.lora.files import load_adapter, save_adapter
from orion_ane.lora.modules import modules_of
from orion_ane.models.config import GPT2Config, LlamaConfig
from orion_ane.models.scratch import draw

LLAMA = LlamaConfig(50, 32, 16, 4, 4, 2, 4, 24, tied=True)
WIDER = LlamaConfig(50, 32, 24, 4, 4, 2, 6, 24, tied=True)
DEEPER = LlamaConfig(50, 32, 16, 6, 4, 2, 4, 24, tied=True)
GPT2 = GPT2Config(50, 32, 16, 2, 4, 64)
BEFORE = "base_model.model."


def filled(model, config):
    adapter = fresh(model, config, seed=3)
    rng = np.random.default_rng(3)
    matrices = {
        path: LowRank(one.a, rng.normal(size=one.b.shape).astype(np.float32), one.scale)
        for path, one in adapter.matrices.items()
    }
    return Adapter(adapter.config, model, matrices, {}, "made")


@pytest.fixture
def folder(tmp_path):
    save_adapter(tmp_path / "a", filled(LLAMA, AdapterConfig(2, 4, ("q_proj", "v_proj"))))
    return tmp_path / "a"


def tensors_of(folder):
    return load_file(folder / "adapter_model.safetensors")


def with_tensors(folder, tensors):
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def with_config(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def alike(found, want):
    assert found.matrices.keys() == want.matrices.keys()
    return all(
        np.array_equal(one.a, want.matrices[path].a)
        and np.array_equal(one.b, want.matrices[path].b)
        for path, one in found.matrices.items()
    )


# Names


@pytest.mark.parametrize(
    "renamed",
    [
        lambda name: name.replace(".weight", ".default.weight"),
        lambda name: name.replace(".weight", ".tales.weight"),
        lambda name: name.removeprefix(BEFORE),
        lambda name: name.removeprefix(BEFORE).replace(".weight", ".default.weight"),
    ],
    ids=["default", "another name", "without the prefix", "neither"],
)
def test_names_that_say_the_same_are_read(folder, renamed):
    want = load_adapter(folder, LLAMA)
    tensors = {renamed(name): array for name, array in tensors_of(folder).items()}
    assert alike(load_adapter(with_tensors(folder, tensors), LLAMA), want)


def test_a_matrix_that_stands_twice_is_refused(folder):
    """Under two names, or under one: a reader that takes the last would not say which."""
    tensors = tensors_of(folder)
    name = next(iter(tensors))
    other = name.replace(".weight", ".default.weight")
    with pytest.raises(CheckpointError, match="twice"):
        load_adapter(with_tensors(folder, tensors | {other: tensors[name] + 1}), LLAMA)
    file = with_tensors(folder, tensors) / "adapter_model.safetensors"
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, body = data[8 : 8 + size].decode().strip(), data[8 + size :]
    entry = json.dumps({name: json.loads(header)[name]})[1:-1]
    doubled = (header[:-1] + "," + entry + "}").encode()
    file.write_bytes(struct.pack("<Q", len(doubled)) + doubled + body)
    with pytest.raises(CheckpointError, match="twice"):
        load_adapter(folder, LLAMA)
    config = folder / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 2', '"r": 2, "r": 4'))
    with pytest.raises(CheckpointError, match="twice"):
        load_adapter(folder, LLAMA)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (WIDER, r"another shape: got .*q_proj\.lora_A \[2, 16\], want \[2, 24\]"),
        (DEEPER, r"matrices are missing.*layers\.4"),
        (GPT2, r"no matrix of it fits this model"),
        (LlamaConfig(50, 32, 16, 2, 4, 2, 4, 24, tied=True), r"fit no linear.*layers\.2"),
    ],
    ids=["wider", "deeper", "another family", "shallower"],
)
def test_an_adapter_of_another_model_is_refused_with_what_differs(folder, model, words):
    """Case L07."""
    with pytest.raises(CheckpointError, match=words):
        load_adapter(folder, model)


# Numbers


def test_bfloat16_is_read_exactly(folder):
    want = load_adapter(folder, LLAMA)
    file = folder / "adapter_model.safetensors"
    header, body = {}, b""
    for name, array in tensors_of(folder).items():
        bits = (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        ends = [len(body), len(body) + len(bits)]
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": ends}
        body += bits
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)
    found = load_adapter(folder, LLAMA)
    for path, one in found.matrices.items():
        bits = want.matrices[path].a.view(np.uint32) & np.uint32(0xFFFF0000)
        assert (one.a.view(np.uint32) == bits).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["lora_A", "lora_B"])
def test_one_number_that_is_not_finite_is_refused_by_its_matrix(folder, value, side):
    tensors = tensors_of(folder)
    name = next(n for n in tensors if side in n and ".2." in n)
    tensors[name].flat[-1] = value
    with pytest.raises(CheckpointError, match=r"layers\.2\..*not finite"):
        load_adapter(with_tensors(folder, tensors), LLAMA)


def test_nothing_is_no_adapter(folder):
    """Case L07: what changes nothing would pass as an adapter that was worn."""
    with pytest.raises(CheckpointError, match="no tensor"):
        load_adapter(with_tensors(folder, {}), LLAMA)
    file = folder / "adapter_model.safetensors"
    for data in (b"", b"\0" * 8, b"\xff" * 64, struct.pack("<Q", 2) + b"[]"):
        file.write_bytes(data)
        with pytest.raises(CheckpointError):
            load_adapter(folder, LLAMA)


@pytest.mark.parametrize("shape", [(0, 16), (2,), (2, 16, 1), (3, 16)])
def test_a_matrix_of_another_shape_is_refused(folder, shape):
    tensors = tensors_of(folder)
    name = next(n for n in tensors if "lora_A" in n)
    tensors[name] = np.zeros(shape, np.float32)
    with pytest.raises(CheckpointError, match="another shape"):
        load_adapter(with_tensors(folder, tensors), LLAMA)


# Configs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("r", 0),
        ("r", -4),
        ("r", 2.5),
        ("r", 1 << 40),
        ("rank_pattern", {"q_proj": 0}),
        ("rank_pattern", ["q_proj"]),
        ("alpha_pattern", {"q_proj": None}),
        ("lora_alpha", True),
        ("lora_dropout", 1.5),
        ("lora_dropout", -0.1),
        ("use_rslora", "yes"),
        ("use_dora", True),
        ("bias", "all"),
        ("bias", "lora_only"),
        ("lora_bias", True),
        ("target_modules", None),
        ("target_modules", []),
        ("target_modules", ["nowhere"]),
        ("target_modules", {"q_proj": 1}),
        ("target_modules", [["q_proj"]]),
        ("layers_to_transform", "1"),
        ("layers_to_transform", [True]),
        ("layers_pattern", 3),
        ("modules_to_save", ["norm"]),
        ("modules_to_save", ["score"]),
        ("modules_to_save", 3),
        ("trainable_token_indices", [1, 2]),
        ("init_lora_weights", "loftq"),
        ("peft_type", "LOHA"),
        ("alora_invocation_tokens", [5]),
    ],
)
def test_a_field_that_cannot_be_honoured_is_named(folder, name, value):
    """Case L17."""
    with pytest.raises(OrionError, match=rf"{name}|no such r\b|another shape|dropout|r is"):
        load_adapter(with_config(folder, **{name: value}), LLAMA)


def test_what_a_later_writer_adds_at_its_defaults_is_one_note(folder):
    """Case L17."""
    fields = {"foobar": None, "use_more": False, "more_config": {}, "more": [], "why": "", "n": 0}
    (note,) = load_adapter(with_config(folder, **fields), LLAMA).notes
    assert all(name in note for name in fields)
    for value in (1, "x", True, {"a": 1}):
        with pytest.raises(ConfigError, match=r"(?s)foobar.*else than LoRA does"):
            load_adapter(with_config(folder, foobar=value), LLAMA)


@pytest.mark.parametrize(
    "pattern",
    [
        "(.*)*x",
        "(a+)+!",
        "(?:a|a)*!",
        "(?:(?:a?)){30}a",
        "(([a-z_.0-9])+)+!",
        ".*" * 9 + "!",
        ".?" * 40 + "!",
        "(?P<x>a*)+",
    ],
)
@pytest.mark.parametrize("name", ["target_modules", "exclude_modules", "rank_pattern"])
def test_a_pattern_that_may_take_for_ever_is_refused(folder, name, pattern):
    value = {pattern: 2} if name == "rank_pattern" else pattern
    with pytest.raises(ConfigError, match="for ever"):
        load_adapter(with_config(folder, **{name: value}), LLAMA)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (r".*\.(q_proj|v_proj)", 8),
        (r"(?:.*?(?:model|text).*?(?:self_attn|attn|mlp).*?(?:q_proj|v_proj).*?)", 8),
        (r"^model\.layers\.([0-9]|1[0-9])\.self_attn\.[qv]_proj$", 8),
        (r"model\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|v_proj))", 8),
    ],
)
def test_patterns_as_tools_write_them_are_read(folder, pattern, count):
    assert len(load_adapter(with_config(folder, target_modules=pattern), LLAMA).matrices) == count


def test_a_whole_name_is_meant_whatever_the_layers_are(tmp_path):
    config, _ = read_config(
        tmp_path / "adapter_config.json",
        {
            "peft_type": "LORA",
            "target_modules": ["model.layers.0.self_attn.q_proj", "v_proj"],
            "layers_to_transform": 2,
            "layers_pattern": "layers",
        },
    )
    found = [path for path in modules_of(LLAMA) if config.carries(path)]
    assert found == ["model.layers.0.self_attn.q_proj", "model.layers.2.self_attn.v_proj"]


# Numbers


def test_doubles_are_rounded_to_fp32_as_peft_rounds_them(folder):
    tensors = {name: array * np.float64(1 / 3) for name, array in tensors_of(folder).items()}
    found = load_adapter(with_tensors(folder, tensors), LLAMA)
    name = "model.layers.0.self_attn.q_proj"
    wide = tensors[f"{BEFORE}{name}.lora_A.weight"]
    assert found.matrices[name].a.dtype == np.float32
    assert (found.matrices[name].a == wide.astype(np.float32)).all()


def test_doubles_that_fp32_has_no_room_for_are_refused(folder):
    tensors = {name: array.astype("f8") for name, array in tensors_of(folder).items()}
    name = next(iter(tensors))
    tensors[name][0, 0] = -1e39
    with pytest.raises(CheckpointError, match=r"has no room for: got 1e\+39"):
        load_adapter(with_tensors(folder, tensors), LLAMA)
    tensors[name][0, 0] = np.inf
    with pytest.raises(CheckpointError, match="not finite"):
        load_adapter(with_tensors(folder, tensors), LLAMA)


# What is put into weights


def test_weights_stay_as_they_are_where_adapters_are_put_into_copies():
    """Case L11: nothing is ever merged in place, so nothing can be merged twice."""
    tensors = draw(LLAMA, seed=0)
    before = {name: array.copy() for name, array in tensors.items()}
    first, second = (filled(LLAMA, AdapterConfig(2, 4, (name,))) for name in ("q_proj", "v_proj"))
    _, once = merged(first, tensors)
    _, again = merged(first, tensors)
    assert all((once[name] == again[name]).all() for name in once)
    assert all((tensors[name] == before[name]).all() for name in tensors)
    _, both = merged(second, once)
    delta = second.matrices["model.layers.0.self_attn.v_proj"].delta()
    np.testing.assert_allclose(both["layers.0.wv"], tensors["layers.0.wv"] + delta, atol=1e-6)
