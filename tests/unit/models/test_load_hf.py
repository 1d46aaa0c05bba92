from __future__ import annotations

import json
import re

import numpy as np
import pytest
from weightfiles import safetensors_bytes

from orion_ane.errors import CheckpointError
from orion_ane.models.config import Rope
from orion_ane.models.weights import TokenizerFiles, load_checkpoint

C, F, V, T = 8, 12, 20, 16
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": V,
    "n_positions": T,
    "n_embd": C,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": F,
    "bos_token_id": 3,
    "eos_token_id": 3,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": V,
    "max_position_embeddings": T,
    "hidden_size": C,
    "intermediate_size": F,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def gpt2_tensors(rng):
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    for i in range(2):
        at = f"h.{i}."
        for name, fan_in, fan_out in (
            ("attn.c_attn", C, 3 * C),
            ("attn.c_proj", C, C),
            ("mlp.c_fc", C, F),
            ("mlp.c_proj", F, C),
        ):
            shapes |= {f"{at}{name}.weight": (fan_in, fan_out), f"{at}{name}.bias": (fan_out,)}
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"{at}{norm}.weight": (C,), f"{at}{norm}.bias": (C,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def llama_tensors(rng):
    shapes = {"embed_tokens.weight": (V, C), "norm.weight": (C,)}
    for i in range(2):
        at = f"layers.{i}."
        shapes |= {
            at + "self_attn.q_proj.weight": (C, C),
            at + "self_attn.k_proj.weight": (C // 2, C),
            at + "self_attn.v_proj.weight": (C // 2, C),
            at + "self_attn.o_proj.weight": (C, C),
            at + "mlp.gate_proj.weight": (F, C),
            at + "mlp.up_proj.weight": (F, C),
            at + "mlp.down_proj.weight": (C, F),
            at + "input_layernorm.weight": (C,),
            at + "post_attention_layernorm.weight": (C,),
        }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write(folder, config, tensors, metadata=None, dtypes=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    data = safetensors_bytes(tensors, metadata, dtypes=dtypes)
    (folder / "model.safetensors").write_bytes(data)
    return folder


def write_shards(folder, config, tensors, count=2):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names, weight_map = list(tensors), {}
    for k in range(count):
        file = f"model-{k + 1:05d}-of-{count:05d}.safetensors"
        mine = {name: tensors[name] for name in names[k::count]}
        (folder / file).write_bytes(safetensors_bytes(mine))
        weight_map |= dict.fromkeys(mine, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def same(found, want):
    assert set(found.tensors) == set(want.tensors)
    for name, array in want.tensors.items():
        assert np.array_equal(found.tensors[name], array), name


@pytest.fixture
def gpt2(tmp_path, rng):
    tensors = gpt2_tensors(rng)
    return load_checkpoint(write(tmp_path / "plain", GPT2, tensors)), tensors


def test_gpt2_matrices_are_turned_and_the_fused_one_is_split(gpt2):
    found, stored = gpt2
    fused = stored["h.1.attn.c_attn.weight"]
    assert np.array_equal(found.tensors["layers.1.wk"], fused[:, C : 2 * C].T)
    assert np.array_equal(found.tensors["layers.1.bv"], stored["h.1.attn.c_attn.bias"][2 * C :])
    assert np.array_equal(found.tensors["layers.0.w1"], stored["h.0.mlp.c_fc.weight"].T)
    assert np.array_equal(found.tensors["wpe"], stored["wpe.weight"])
    assert found.tensors["layers.0.w2"].shape == (C, F)
    assert all(a.flags.c_contiguous and not a.flags.writeable for a in found.tensors.values())
    assert (found.config.bos_id, found.config.eos_ids, found.stored) == (3, (3,), "fp32")


@pytest.mark.parametrize("prefix", ["transformer.", "model.", "_orig_mod.", "_orig_mod.model."])
def test_any_prefix_of_the_keys_gives_the_same_model_W09(tmp_path, gpt2, prefix):
    want, tensors = gpt2
    renamed = {prefix + name: array for name, array in tensors.items()}
    same(load_checkpoint(write(tmp_path / "other", GPT2, renamed)), want)


def test_an_unknown_key_is_listed_W09(tmp_path, gpt2):
    _, tensors = gpt2
    more = {f"transformer.{k}": a for k, a in tensors.items()}
    more |= {"h.0.attn.c_extra.weight": tensors["ln_f.bias"], "score.weight": tensors["ln_f.bias"]}
    want = "tensors that nothing uses: got h.0.attn.c_extra.weight, score.weight"
    with pytest.raises(CheckpointError, match=want):
        load_checkpoint(write(tmp_path / "other", GPT2, more))


def test_buffers_of_old_writers_are_left_alone(tmp_path, gpt2, rng):
    want, tensors = gpt2
    mask = {
        "h.0.attn.bias": np.ones((1, 1, T, T), np.uint8),
        "h.1.attn.masked_bias": np.float32(-1),
    }
    same(load_checkpoint(write(tmp_path / "a", GPT2, tensors | mask)), want)
    llama = llama_tensors(rng)
    turned = {"model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    found = load_checkpoint(write(tmp_path / "b", LLAMA, llama | turned))
    assert np.array_equal(found.tensors["layers.1.wk"], llama["layers.1.self_attn.k_proj.weight"])


def test_two_names_for_one_tensor_are_refused(tmp_path, gpt2):
    _, tensors = gpt2
    twice = tensors | {"transformer.wte.weight": tensors["wte.weight"]}
    with pytest.raises(
        CheckpointError, match=r"one name: got wte\.weight and transformer\.wte\.weight"
    ):
        load_checkpoint(write(tmp_path / "other", GPT2, twice))


def test_every_missing_tensor_is_named_at_once(tmp_path, gpt2):
    _, tensors = gpt2
    fewer = {k: v for k, v in tensors.items() if "ln_2.weight" not in k}
    fewer["h.9.ln_2.weight"] = tensors["ln_f.bias"]
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(write(tmp_path / "other", GPT2, fewer))
    assert str(error.value).endswith(
        "model.safetensors: tensors are missing: want h.0.ln_2.weight, h.1.ln_2.weight\n"
        "  hint: nothing uses h.9.ln_2.weight"
    )


def test_every_wrong_shape_is_named_at_once(tmp_path, gpt2):
    _, tensors = gpt2
    wrong = tensors | {"wpe.weight": np.ones((T, C + 1), np.float32)}
    wrong["h.1.mlp.c_fc.weight"] = np.ascontiguousarray(wrong["h.1.mlp.c_fc.weight"].T)
    want = (
        r"got wpe.weight \[16,9\] \(not \[16,8\]\), h.1.mlp.c_fc.weight \[12,8\] \(not \[8,12\]\)"
    )
    with pytest.raises(CheckpointError, match=want):
        load_checkpoint(write(tmp_path / "other", GPT2, wrong))


def test_element_types_that_are_not_read_are_named(tmp_path, gpt2):
    _, tensors = gpt2
    whole = tensors | {"ln_f.bias": np.ones(C, np.int64)}
    folder = write(tmp_path / "other", GPT2, whole)
    with pytest.raises(CheckpointError, match=r"types that are not read: got ln_f\.bias i64"):
        load_checkpoint(folder)


class TestHead:
    def test_gpt2_without_one_is_tied_and_with_an_equal_one_too_W01(self, tmp_path, gpt2):
        want, tensors = gpt2
        assert "head" not in want.tensors
        equal = tensors | {"lm_head.weight": tensors["wte.weight"].copy()}
        same(load_checkpoint(write(tmp_path / "a", GPT2, equal)), want)
        untied = GPT2 | {"tie_word_embeddings": False}
        same(load_checkpoint(write(tmp_path / "b", untied, equal)), want)

    def test_a_head_named_in_the_metadata_is_the_embedding_W03(self, tmp_path, gpt2):
        want, tensors = gpt2
        aliases = {"format": "pt", "lm_head.weight": "wte.weight"}
        for config in (GPT2, GPT2 | {"tie_word_embeddings": False}):
            same(load_checkpoint(write(tmp_path / "a", config, tensors, aliases)), want)

    def test_an_embedding_named_in_the_metadata_is_the_head_W03(self, tmp_path, gpt2):
        want, tensors = gpt2
        moved = {"lm_head.weight" if k == "wte.weight" else k: v for k, v in tensors.items()}
        aliases = {"transformer.wte.weight": "lm_head.weight"}
        same(load_checkpoint(write(tmp_path / "a", GPT2, moved, aliases)), want)

    def test_a_head_that_differs_is_refused_with_its_reason(self, tmp_path, gpt2):
        _, tensors = gpt2
        other = tensors | {"lm_head.weight": tensors["wte.weight"] + 1}
        with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from wte\.weight"):
            load_checkpoint(write(tmp_path / "a", GPT2, other))
        found = load_checkpoint(write(tmp_path / "b", GPT2 | {"tie_word_embeddings": False}, other))
        assert not found.config.tied
        assert (found.tensors["head"] == other["lm_head.weight"]).all()
        assert (found.tensors["wte"] == other["wte.weight"]).all()
        with pytest.raises(CheckpointError, match=r"missing.*lm_head"):
            load_checkpoint(write(tmp_path / "c", GPT2 | {"tie_word_embeddings": False}, tensors))

    def test_llama_ties_only_where_its_config_says_so(self, tmp_path, rng):
        tensors = llama_tensors(rng)
        untied = LLAMA | {"tie_word_embeddings": False}
        head = {"lm_head.weight": rng.normal(size=(V, C)).astype(np.float32)}
        found = load_checkpoint(write(tmp_path / "a", untied, tensors | head))
        assert not found.config.tied
        assert np.array_equal(found.tensors["head"], head["lm_head.weight"])
        with pytest.raises(CheckpointError, match=r"missing: want lm_head\.weight"):
            load_checkpoint(write(tmp_path / "b", untied, tensors))
        with pytest.raises(CheckpointError, match=r"differs from embed_tokens\.weight"):
            load_checkpoint(write(tmp_path / "c", LLAMA, tensors | head))
        equal = {"lm_head.weight": tensors["embed_tokens.weight"]}
        found = load_checkpoint(write(tmp_path / "d", LLAMA, tensors | equal))
        assert found.config.tied
        assert "head" not in found.tensors


class TestShards:
    def test_shards_are_one_model(self, tmp_path, gpt2):
        want, tensors = gpt2
        found = load_checkpoint(write_shards(tmp_path / "shards", GPT2, tensors, 3))
        same(found, want)
        assert found.origin == str(tmp_path / "shards")

    def test_a_missing_shard_is_named_and_nothing_is_read_W05(self, tmp_path, gpt2, monkeypatch):
        folder = write_shards(tmp_path / "shards", GPT2, gpt2[1])
        (folder / "model-00002-of-00002.safetensors").unlink()

        def never(path):
            raise AssertionError(path)

        monkeypatch.setattr("orion_ane.models.weights.hf.open_safetensors", never)
        want = "shards are missing: want model-00002-of-00002.safetensors"
        with pytest.raises(CheckpointError, match=want):
            load_checkpoint(folder)

    def test_a_shard_that_is_not_what_the_index_says_is_refused(self, tmp_path, gpt2):
        folder = write_shards(tmp_path / "shards", GPT2, gpt2[1])
        index_path = folder / "model.safetensors.index.json"
        whole = json.loads(index_path.read_text())["weight_map"]
        fewer = {name: file for name, file in whole.items() if name != "wte.weight"}
        index_path.write_text(json.dumps({"weight_map": fewer}))
        with pytest.raises(CheckpointError, match=r"that the index lacks: got wte\.weight"):
            load_checkpoint(folder)
        index_path.write_text(json.dumps({"weight_map": whole | {"more": whole["wte.weight"]}}))
        with pytest.raises(CheckpointError, match="of the index are missing: want more"):
            load_checkpoint(folder)

    @pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", 7])
    def test_a_shard_lies_beside_its_index(self, tmp_path, gpt2, name):
        folder = write_shards(tmp_path / "shards", GPT2, gpt2[1])
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"wte.weight": name}})
        )
        with pytest.raises(CheckpointError, match="no such shard"):
            load_checkpoint(folder)

    def test_an_index_without_a_map_is_refused(self, tmp_path, gpt2):
        folder = write_shards(tmp_path / "shards", GPT2, gpt2[1])
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
        with pytest.raises(CheckpointError, match="weight_map is missing or empty"):
            load_checkpoint(folder)

    def test_one_file_and_an_index_together_are_ambiguous(self, tmp_path, gpt2):
        folder = write_shards(tmp_path / "shards", GPT2, gpt2[1])
        write(folder, GPT2, gpt2[1])
        with pytest.raises(CheckpointError, match="two sets of weights"):
            load_checkpoint(folder)


class TestFolders:
    def test_an_empty_folder_is_refused_W05(self, tmp_path):
        with pytest.raises(CheckpointError, match="holds no model: want config"):
            load_checkpoint(tmp_path)

    def test_a_run_of_training_is_no_model_and_the_way_to_one_is_told(self, tmp_path):
        (tmp_path / "run/step-00000010").mkdir(parents=True)
        (tmp_path / "run/step-00000010/checkpoint.json").write_text("")
        way = re.escape(f"--checkpoint-dir {tmp_path / 'run'} --resume --export NAME")
        for folder in (tmp_path / "run", tmp_path / "run/step-00000010"):
            with pytest.raises(CheckpointError, match=rf"not a model\n  hint: .* {way} writes it"):
                load_checkpoint(folder)

    def test_a_folder_without_a_config_is_refused(self, tmp_path, gpt2):
        folder = write(tmp_path / "a", GPT2, gpt2[1])
        (folder / "config.json").unlink()
        with pytest.raises(CheckpointError, match=r"a: config\.json is missing"):
            load_checkpoint(folder)

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
    def test_pickles_are_refused_with_the_reason_and_the_way_out(self, tmp_path, name):
        (tmp_path / "config.json").write_text(json.dumps(GPT2))
        (tmp_path / name).write_bytes(b"PK\x03\x04")
        with pytest.raises(CheckpointError, match=r"run any code(.|\n)*safe_serialization=True"):
            load_checkpoint(tmp_path)

    @pytest.mark.parametrize("start", [b"PK\x03\x04archive", b"\x80\x02pickle"])
    def test_a_pickled_file_is_refused_as_such(self, tmp_path, start):
        path = tmp_path / "pytorch_model.bin"
        path.write_bytes(start)
        with pytest.raises(CheckpointError, match="a pickle, which can run any code"):
            load_checkpoint(path)

    def test_an_adapter_is_not_a_model(self, tmp_path):
        (tmp_path / "adapter_config.json").write_text("{}")
        with pytest.raises(CheckpointError, match="a LoRA adapter, not a model"):
            load_checkpoint(tmp_path)

    def test_what_is_not_there_or_not_a_checkpoint_is_said_so(self, tmp_path, gpt2):
        with pytest.raises(CheckpointError, match="no such file or folder"):
            load_checkpoint(tmp_path / "nowhere")
        folder = write(tmp_path / "a", GPT2, gpt2[1])
        with pytest.raises(CheckpointError, match="hint: give the folder that holds it"):
            load_checkpoint(folder / "model.safetensors")
        (tmp_path / "notes.txt").write_text("hello")
        with pytest.raises(CheckpointError, match="not a checkpoint we read"):
            load_checkpoint(tmp_path / "notes.txt")


@pytest.mark.parametrize("numpy_type", [np.float16, np.float32])
def test_floats_stay_as_they_are_stored(tmp_path, gpt2, numpy_type):
    tensors = {name: array.astype(numpy_type) for name, array in gpt2[1].items()}
    found = load_checkpoint(write(tmp_path / "a", GPT2, tensors))
    assert {array.dtype for array in found.tensors.values()} == {np.dtype(numpy_type)}
    assert found.stored == ("fp16" if numpy_type == np.float16 else "fp32")
    assert np.array_equal(found.tensors["wte"], tensors["wte.weight"])


def test_bf16_is_widened_exactly_W07(tmp_path, gpt2):
    words = {k: (a.view(np.uint32) >> 16).astype(np.uint16) for k, a in gpt2[1].items()}
    words["ln_f.bias"][:3] = [0x3F80, 0xC049, 0x7F7F]
    folder = write(tmp_path / "a", GPT2, words, dtypes=dict.fromkeys(words, "BF16"))
    found = load_checkpoint(folder)
    assert found.stored == "bf16"
    assert found.tensors["lnf_b"][:3].tolist() == [1, -3.140625, float(np.float32(3.3895314e38))]
    assert np.array_equal(
        found.tensors["wte"].view(np.uint32), words["wte.weight"].astype(np.uint32) << 16
    )


def test_odd_places_in_the_file_are_read_right(tmp_path, gpt2):
    """A tensor of one byte before them leaves every float unaligned."""
    tensors = {"h.0.attn.bias": np.ones(1, np.uint8)} | gpt2[1]
    found = load_checkpoint(write(tmp_path / "a", GPT2, tensors))
    same(found, gpt2[0])
    assert all(array.flags.aligned for array in found.tensors.values())


class TestTokenizers:
    def test_files_are_described_where_a_vocabulary_is_among_them(self, tmp_path, gpt2):
        folder = write(tmp_path / "a", GPT2, gpt2[1])
        (folder / "merges.txt").write_text("")
        assert load_checkpoint(folder).tokenizer is None
        for name in ("vocab.json", "tokenizer_config.json"):
            (folder / name).write_text("{}")
        names = ("tokenizer_config.json", "vocab.json", "merges.txt")
        want = TokenizerFiles("huggingface", {name: folder / name for name in names})
        assert load_checkpoint(folder).tokenizer == want

    def test_ends_of_text_are_those_of_generation_config_where_it_has_any(self, tmp_path, gpt2):
        folder = write(tmp_path / "a", GPT2 | {"eos_token_id": [4, 5]}, gpt2[1])
        assert load_checkpoint(folder).config.eos_ids == (4, 5)
        generation = folder / "generation_config.json"
        generation.write_text(json.dumps({"temperature": 0.5}))
        assert load_checkpoint(folder).config.eos_ids == (4, 5)
        generation.write_text(json.dumps({"eos_token_id": [6, 7]}))
        assert load_checkpoint(folder).config.eos_ids == (6, 7)


def test_gpt2_mini_loads_in_its_own_precision(data_dir):
    found = load_checkpoint(data_dir / "gpt2-mini")
    assert found.stored == "fp16"
    assert sum(array.size for array in found.tensors.values()) == 957_184
    assert set(found.tokenizer.files) == {"vocab.json", "merges.txt"}
    assert found.config.context == 256


def test_rope_of_a_llama_is_read_from_its_config(tmp_path, rng):
    config = LLAMA | {"rope_theta": 123.0, "rope_scaling": {"type": "linear", "factor": 2}}
    found = load_checkpoint(write(tmp_path / "a", config, llama_tensors(rng)))
    assert found.config.rope == Rope(123.0, "linear", (("factor", 2),))
