"""Adapters in files: what is read, what is refused, and by which name."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from threadpoolctl import threadpool_limits

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.lora.adapter import LowRank, fresh, merged, of_matrices
from orion_ane.lora.config import AdapterConfig, read_config
from orion_ane.lora.files import load_adapter, save_adapter
from orion_ane.lora.modules import modules_of
from orion_ane.models.config import GPT2Config, LlamaConfig
from orion_ane.models.scratch import draw

LLAMA = LlamaConfig(50, 32, 16, 4, 4, 2, 4, 24, tied=True)
GPT2 = GPT2Config(50, 32, 16, 2, 4, 64)


def filled(model, config, rng):
    """A new adapter whose B is not zeros."""
    adapter = fresh(model, config, seed=3)
    matrices = {
        path: LowRank(one.a, rng.normal(size=one.b.shape).astype(np.float32), one.scale)
        for path, one in adapter.matrices.items()
    }
    return type(adapter)(adapter.config, model, matrices, {}, "made")


def written(folder, adapter, **changes):
    save_adapter(folder, adapter)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_scales_are_alpha_over_rank_or_over_its_root():
    """Case L01."""
    for rank, plain, stable in ((16, 1.0, 4.0), (64, 0.25, 2.0)):
        for is_stable, want in ((False, plain), (True, stable)):
            config = AdapterConfig(rank, 16, ("q_proj",), rank_stabilised=is_stable)
            assert config.scale_of("model.layers.0.self_attn.q_proj", rank) == want


def test_a_of_a_fused_matrix_is_rank_by_in_and_b_out_by_rank():
    """Case L03."""
    one = LowRank(np.array([[1.0, 1.0]]), np.arange(1.0, 7)[:, None], 2 / 1)
    assert (one.delta() @ [1.0, 2.0] == [6, 12, 18, 24, 30, 36]).all()


def test_what_is_added_is_the_same_however_many_threads_numpy_s_blas_has(rng):
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 2048), (768, 16)))
    found = []
    for count in (1, 2, 3):
        with threadpool_limits(count, user_api="blas"):
            found.append(LowRank(a, b, 2.0).delta())
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], 2 * (b.astype(float) @ a), atol=1e-4)


def test_patterns_win_over_what_holds_for_all():
    """Case L05."""
    config = AdapterConfig(
        8, 16, ("q_proj",), rank_pattern={"layers.3.*": 32}, alpha_pattern={"layers.3.*": 128}
    )
    for i, (rank, scale) in enumerate([(8, 2.0)] * 3 + [(32, 4.0)]):
        path = f"model.layers.{i}.self_attn.q_proj"
        assert config.rank_of(path) == rank
        assert config.scale_of(path, rank) == scale


def test_an_adapter_comes_back_as_it_was_written(tmp_path, rng):
    for model, targets in ((LLAMA, ("q_proj", "down_proj", "lm_head")), (GPT2, ("c_attn",))):
        adapter = filled(model, AdapterConfig(3, 6, targets, dropout=0.1), rng)
        found = load_adapter(written(tmp_path / model.family, adapter), model)
        assert found.config == adapter.config
        assert found.matrices.keys() == adapter.matrices.keys()
        for path, one in adapter.matrices.items():
            again = found.matrices[path]
            assert (again.a == one.a).all()
            assert (again.b == one.b).all()
            assert again.scale == one.scale


def test_an_adapter_that_fits_nothing_is_an_error_with_examples(tmp_path, rng):
    """Case L07."""
    folder = written(tmp_path / "a", filled(GPT2, AdapterConfig(2, 2, ("c_attn",)), rng))
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    wrong = {name.replace("transformer", "language_model"): t for name, t in tensors.items()}
    save_file(wrong, path)
    with pytest.raises(CheckpointError, match=r"transformer\.h\.0\.mlp\.c_fc") as refused:
        load_adapter(folder, GPT2)
    assert str(refused.value).count("lora_A.weight") >= 3
    one = next(iter(wrong))
    save_file(tensors | {one: wrong[one]}, path)
    with pytest.raises(CheckpointError, match="language_model"):
        load_adapter(folder, GPT2)


def test_a_head_that_was_tied_is_changed_alone(rng):
    """Case L13."""
    adapter = filled(LLAMA, AdapterConfig(2, 2, ("lm_head",)), rng)
    tensors = draw(LLAMA, seed=0)
    config, found = merged(adapter, tensors)
    assert not config.tied
    assert (found["embed"] == tensors["embed"]).all()
    delta = adapter.matrices["lm_head"].delta()
    assert np.allclose(found["head"], tensors["embed"] + delta, atol=1e-6)


def test_empty_fields_that_nobody_knows_are_passed_over_with_one_note(tmp_path, rng):
    """Case L17."""
    adapter = filled(LLAMA, AdapterConfig(2, 2, ("q_proj",)), rng)
    folder = written(tmp_path / "a", adapter, foobar=None, later_config={}, use_more=False)
    (note,) = load_adapter(folder, LLAMA).notes
    assert all(name in note for name in ("foobar", "later_config", "use_more"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_dora", True),
        ("bias", "lora_only"),
        ("lora_bias", True),
        ("init_lora_weights", "pissa"),
        ("peft_type", "IA3"),
        ("layer_replication", [[0, 2]]),
        ("target_parameters", ["x"]),
        ("foobar", 1),
        ("r", 0),
        ("r", True),
        ("lora_alpha", "much"),
        ("rank_pattern", {"q_proj": -1}),
        ("rank_pattern", {"(": 4}),
        ("target_modules", ["("]),
        ("target_modules", 7),
        ("layers_to_transform", [-1]),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(tmp_path, rng, name, value):
    adapter = filled(LLAMA, AdapterConfig(2, 2, ("q_proj",)), rng)
    folder = written(tmp_path / "a", adapter, **{name: value})
    with pytest.raises(ConfigError, match=rf"{name}|not a pattern"):
        load_adapter(folder, LLAMA)


def test_weights_and_config_name_the_same_linears(tmp_path, rng):
    adapter = filled(LLAMA, AdapterConfig(2, 2, ("q_proj", "v_proj")), rng)
    folder = written(tmp_path / "less", adapter, target_modules=["q_proj"])
    with pytest.raises(CheckpointError, match=r"does not name.*v_proj"):
        load_adapter(folder, LLAMA)
    folder = written(tmp_path / "more", adapter, target_modules=["q_proj", "v_proj", "o_proj"])
    with pytest.raises(CheckpointError, match=r"missing.*o_proj"):
        load_adapter(folder, LLAMA)
    with pytest.raises(CheckpointError, match="another shape"):
        load_adapter(written(tmp_path / "rank", adapter, r=3), LLAMA)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"dim": 32, "head_dim": 8, "layers": 6},
            r"shape: got model\.layers\.0\.self_attn\.q_proj\.lora_A \[2, 16\], want \[2, 32\]",
        ),
        ({"head_dim": 8, "layers": 3}, r"lora_B \[16, 2\], want \[32, 2\]"),
        ({"layers": 6}, r"missing: want model\.layers\.4\.self_attn\.q_proj"),
        ({"layers": 3}, r"no linear of this model: got base_model\.model\.model\.layers\.3\."),
    ],
)
def test_an_adapter_for_another_model_names_that_model(changes, words, tmp_path, rng):
    adapter = filled(LLAMA, AdapterConfig(2, 2, ("q_proj", "v_proj"), base="tales-15m"), rng)
    folder = written(tmp_path / "a", adapter)
    with pytest.raises(CheckpointError, match=words) as refused:
        load_adapter(folder, replace(LLAMA, **changes))
    assert "hint: its config says that it was made for tales-15m" in str(refused.value)
    with pytest.raises(CheckpointError, match="no matrix of it fits") as refused:
        load_adapter(folder, GPT2)
    assert "made for tales-15m" in str(refused.value)


def test_damaged_numbers_are_refused(tmp_path, rng):
    adapter = filled(LLAMA, AdapterConfig(2, 2, ("q_proj",)), rng)
    folder = written(tmp_path / "a", adapter)
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    for bad, words in (
        ({name: np.full_like(tensors[name], np.nan)}, "not finite"),
        ({name: tensors[name].astype(np.int32)}, "not read"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": tensors[name]}, "vectors"),
    ):
        save_file(tensors | bad, path)
        with pytest.raises(CheckpointError, match=words):
            load_adapter(folder, LLAMA)
    save_file({k: v for k, v in tensors.items() if k != name}, path)
    with pytest.raises(CheckpointError, match="alone"):
        load_adapter(folder, LLAMA)
    path.unlink()
    (folder / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="pickle"):
        load_adapter(folder, LLAMA)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_an_adapter_of_mlx_is_turned_and_keeps_its_scale(tmp_path, rng, dtype):
    path = "model.layers.1.self_attn.q_proj"
    module = modules_of(LLAMA)[path]
    a, b = rng.normal(size=(module.columns, 5)), rng.normal(size=(5, module.rows))
    parameters = {"rank": 5, "scale": 20.0, "dropout": 0.0}
    document = {"fine_tune_type": "lora", "num_layers": 4, "lora_parameters": parameters}
    (tmp_path / "adapter_config.json").write_text(json.dumps(document))
    tensors = {f"{path}.lora_a": a.astype(dtype), f"{path}.lora_b": b.astype(dtype)}
    save_file(tensors, tmp_path / "adapters.safetensors")
    found = load_adapter(tmp_path, LLAMA)
    want = 20 * (a @ b).T
    assert np.allclose(found.matrices[path].delta(), want, rtol=1e-5)
    save_adapter(tmp_path / "peft", found)
    again = load_adapter(tmp_path / "peft", LLAMA)
    assert np.allclose(again.matrices[path].delta(), want, rtol=1e-5)
    (tmp_path / "adapter_config.json").write_text(json.dumps(document | {"fine_tune_type": "dora"}))
    with pytest.raises(ConfigError, match="fine_tune_type"):
        load_adapter(tmp_path, LLAMA)


def test_a_config_told_by_matrices_names_them_all(rng):
    for model in (LLAMA, GPT2):
        every = [path for path in modules_of(model) if path != "lm_head"]
        for chosen in (every, every[:1], every[1::2]):
            matrices = {
                path: LowRank(
                    np.zeros((1 + i % 3, modules_of(model)[path].columns)),
                    np.zeros((modules_of(model)[path].rows, 1 + i % 3)),
                    0.5 * (i + 1),
                )
                for i, path in enumerate(chosen)
            }
            config = of_matrices(model, matrices).config
            assert {p for p in modules_of(model) if config.carries(p)} == set(chosen)
            for path, one in matrices.items():
                assert config.rank_of(path) == one.rank
                assert config.scale_of(path, one.rank) == pytest.approx(one.scale)


def test_a_pattern_that_is_absurdly_long_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="too long"):
        read_config(tmp_path / "adapter_config.json", {"r": 2, "target_modules": "a" * 5000})
