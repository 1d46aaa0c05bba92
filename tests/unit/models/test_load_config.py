from __future__ import annotations

import json

import pytest

from orion_ane.errors import ConfigError
from orion_ane.models.config import GPT2Config, LlamaConfig, Rope
from orion_ane.models.weights.hf_config import from_hf

GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
# The config.json of the first GPT-2 release and of its medium size, of distilled and tuned ones.
OLD_GPT2 = json.loads("""{
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16,
  "n_layer": 24, "n_positions": 1024, "n_special": 0, "predict_special_tokens": true,
  "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257, "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
  "transformers_version": "4.1", "gradient_checkpointing": false, "use_cache": true}""")
# As SmolLM2's and TinyLlama's are written.
SMOL = LLAMA | json.loads("""{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.04,
  "is_llama_config": true, "mlp_bias": false, "num_key_value_heads": 2, "pad_token_id": 2,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
  "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers.js_config": {"dtype": "q4"}, "transformers_version": "4.42.3",
  "use_cache": true}""")


def read(config, generation=None):
    return from_hf("config.json", config, generation or {})


def test_published_configs_are_read_whole():
    assert read(OLD_GPT2) == GPT2Config(
        vocab=50257, context=1024, dim=1024, layers=24, heads=16, hidden=4096,
        norm_eps=1e-5, bos_id=50256, eos_ids=(50256,),
    )  # fmt: skip
    assert read(SMOL) == LlamaConfig(
        vocab=32000, context=2048, dim=64, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=96,
        tied=True, norm_eps=1e-5, rope=Rope(100000), bos_id=1, eos_ids=(2,),
    )  # fmt: skip


def test_what_llama_leaves_out_has_the_values_of_its_first_release():
    assert read(LLAMA) == LlamaConfig(
        vocab=32000, context=2048, dim=64, layers=2, heads=4, kv_heads=4, head_dim=16, hidden=96,
        tied=False, norm_eps=1e-6, rope=Rope(), bos_id=None, eos_ids=(),
    )  # fmt: skip


def test_head_dim_may_be_its_own():
    assert read(LLAMA | {"head_dim": 24}).head_dim == 24
    assert read(LLAMA | {"head_dim": 24, "num_attention_heads": 3}).head_dim == 24
    with pytest.raises(ConfigError, match="heads do not divide hidden_size: got 3 of 64"):
        read(LLAMA | {"num_attention_heads": 3})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activation_function", "gelu"),
        ("activation_function", "relu"),
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("reorder_and_upcast_attn", True),
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("n_ctx", 512),
        ("n_special", 3),
        ("pruned_heads", {"0": [1]}),
        ("quantization_config", {"bits": 4}),
        ("never_heard_of", 1),
        ("never_heard_of", False),
    ],
)
def test_gpt2_fields_that_change_the_arithmetic_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"config\.json: fields that cannot .*: got {field} "):
        read(GPT2 | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("sliding_window", 4096),
        ("use_sliding_window", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("layer_types", ["full_attention"]),
        ("rope_interleaved", True),
        ("partial_rotary_factor", 0.5),
        ("quantization_config", {"quant_method": "awq"}),
        ("quantization", {"bits": 4, "group_size": 64}),
        ("num_local_experts", 8),
        ("attention_multiplier", 0.1),
        ("auto_map", {"AutoModel": "x.Y"}),
    ],
)
def test_llama_fields_that_change_the_arithmetic_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"config\.json: fields that cannot .*: got {field} "):
        read(LLAMA | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "swish"),
        ("attention_bias", False),
        ("sliding_window", None),
        ("layer_types", ["full_attention", "full_attention"]),
        ("partial_rotary_factor", 1.0),
        ("quantization_config", None),
        ("never_heard_of", None),
        ("attention_dropout", 0.1),
    ],
)
def test_neutral_values_change_nothing(field, value):
    assert read(LLAMA | {field: value}) == read(LLAMA)


def test_all_refused_fields_are_listed_at_once():
    bad = GPT2 | {"activation_function": "relu", "add_cross_attention": True, "mystery": [1]}
    with pytest.raises(ConfigError) as error:
        read(bad)
    for told in ("activation_function 'relu'", "add_cross_attention true", "mystery [1]"):
        assert told in str(error.value)


@pytest.mark.parametrize("family", [None, "qwen2", "mistral", 3])
def test_another_family_is_refused(family):
    with pytest.raises(ConfigError, match="not a family we know"):
        read({**LLAMA, "model_type": family})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0),
        ("vocab_size", -1),
        ("vocab_size", "many"),
        ("vocab_size", True),
        ("vocab_size", 1.5),
        ("vocab_size", 10**400),
        ("num_hidden_layers", 10**9),
        ("rms_norm_eps", "small"),
        ("rms_norm_eps", 10**400),
        ("rms_norm_eps", -1),
        ("tie_word_embeddings", 1),
        ("bos_token_id", "x"),
        ("eos_token_id", [1, None]),
        ("eos_token_id", -1),
        ("rope_theta", 0),
        ("rope_theta", [1]),
        ("rope_scaling", 5),
        ("rope_scaling", {"type": "linear", "factor": 10**400}),
        ("rope_scaling", {"type": ["linear"]}),
        ("hidden_act", ["silu"]),
    ],
)
def test_values_that_mean_nothing_are_refused(field, value):
    with pytest.raises(ConfigError):
        read(LLAMA | {field: value})


def test_a_size_that_is_missing_is_named():
    with pytest.raises(ConfigError, match=r"config\.json: hidden_size is missing"):
        read({k: v for k, v in LLAMA.items() if k != "hidden_size"})


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


class TestRope:
    def test_old_and_new_layouts_say_the_same(self):
        want = Rope(5e5, "llama3", tuple(LLAMA3.items()))
        old = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}
        new = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}
        assert read(LLAMA | old).rope == read(LLAMA | new).rope == want

    def test_the_older_key_for_the_type_and_nulls_are_understood(self):
        old = {"rope_scaling": {"type": "linear", "factor": 2.0, "attention_factor": None}}
        assert read(LLAMA | old).rope == Rope(kind="linear", parameters=(("factor", 2.0),))

    def test_default_parameters_are_no_scaling(self):
        new = {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}
        assert read(LLAMA | new).rope == Rope(7.0)

    @pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "factors", "mrope"])
    def test_a_type_that_we_cannot_do_is_named(self, kind):
        with pytest.raises(ConfigError, match=f"a rope type we cannot do: got {kind}"):
            read(LLAMA | {"rope_scaling": {"type": kind, "factor": 2.0}})

    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            ({"short_factor": [1.0]}, "no such short_factor"),
            ({"short_factor": 1.0}, "unknown parameters: got short_factor"),
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
            ({"full_attention": {"rope_type": "default"}}, "no such full_attention"),
        ],
    )
    def test_parameters_that_we_cannot_honour_are_refused(self, extra, message):
        with pytest.raises(ConfigError, match=message):
            read(LLAMA | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, **extra}})

    def test_two_settings_that_disagree_are_refused(self):
        both = {
            "rope_scaling": {"type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "linear", "factor": 4.0},
        }
        with pytest.raises(ConfigError, match="rope_parameters and rope_scaling disagree"):
            read(LLAMA | both)
