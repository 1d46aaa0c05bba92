"""config.json of a Hugging Face folder: every field is honoured, neutral, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from orion_ane.errors import ConfigError
from orion_ane.host.rope import ROPE_KINDS, RopeKind
from orion_ane.models.config import GPT2Config, LlamaConfig, ModelConfig, Rope
from orion_ane.models.weights.fields import Fields

FAMILIES = ("gpt2", "llama")

# What says nothing about the arithmetic of inference: provenance, training, other heads, and the
# generation defaults that configs of old carried.
_HARMLESS = """
_name_or_path architectures dtype model_type torch_dtype transformers_version
transformers.js_config unsloth_fixed unsloth_version use_cache is_llama_config pretraining_tp
attention_dropout attn_pdrop embd_pdrop resid_pdrop initializer_range gradient_checkpointing
summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
predict_special_tokens _num_labels num_labels id2label label2id problem_type finetuning_task
task_specific_params tokenizer_class prefix output_attentions output_hidden_states
output_scores return_dict return_dict_in_generate torchscript is_decoder
bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id
bad_words_ids begin_suppress_tokens suppress_tokens forced_bos_token_id forced_eos_token_id
do_sample early_stopping temperature top_k top_p typical_p min_length max_length length_penalty
repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size diversity_penalty
num_beams num_beam_groups num_return_sequences remove_invalid_values
exponential_decay_length_penalty tf_legacy_loss use_bfloat16 _attn_implementation
_attn_implementation_autoset _from_model_config
"""
HARMLESS = frozenset(_HARMLESS.split())


def from_hf(
    where: str, config: Mapping[str, object], generation: Mapping[str, object]
) -> ModelConfig:
    """The model that config.json describes.

    Args:
        where: the config's path, as messages name it.
        config: what config.json says.
        generation: what generation_config.json says; its end-of-text ids win, as they do in
            transformers' `generate`.

    Raises:
        ConfigError: another family, an impossible size, or a field that cannot be honoured.
    """
    fields = Fields(where, config)
    family = fields.get("model_type")
    if family not in FAMILIES:
        got = family if family is not None else "no model_type"
        raise ConfigError(where, "not a family we know", got=got, want=" or ".join(FAMILIES))
    _refuse_common(fields)
    eos = Fields(where, generation).ids("eos_token_id") or fields.ids("eos_token_id")
    bos = fields.ids("bos_token_id")
    read = _gpt2 if family == "gpt2" else _llama
    found = read(fields, bos[0] if bos else None, eos)
    fields.finish(harmless=HARMLESS)
    return found


def _refuse_common(fields: Fields) -> None:
    """What changes the arithmetic of both families."""
    for name in ("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"):
        fields.only(name, False)
    fields.only("pruned_heads", {})
    fields.only("chunk_size_feed_forward", 0)
    for name in ("quantization_config", "quantization", "compression_config", "sliding_window"):
        fields.refuse(name)


def _gpt2(fields: Fields, bos: int | None, eos: tuple[int, ...]) -> ModelConfig:
    context, dim = fields.size("n_positions", 1024), fields.size("n_embd", 768)
    fields.only("activation_function", "gelu_new", "gelu_pytorch_tanh", "gelu_fast")
    fields.only("scale_attn_weights", True)
    fields.only("scale_attn_by_inverse_layer_idx", False)
    fields.only("reorder_and_upcast_attn", False)
    fields.only("n_ctx", context)
    fields.only("n_special", 0)
    return GPT2Config(
        vocab=fields.size("vocab_size", 50257),
        context=context,
        dim=dim,
        layers=fields.size("n_layer", 12),
        heads=fields.size("n_head", 12),
        hidden=fields.size("n_inner", 4 * dim),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        bos_id=bos,
        eos_ids=eos,
        tied=fields.flag("tie_word_embeddings", default=True),
    )


def _llama(fields: Fields, bos: int | None, eos: tuple[int, ...]) -> ModelConfig:
    dim, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    fields.only("hidden_act", "silu", "swish")
    for name in ("attention_bias", "mlp_bias", "use_sliding_window", "rope_interleaved"):
        fields.only(name, False)
    layers = fields.size("num_hidden_layers")
    fields.only("layer_types", ["full_attention"] * min(layers, 1 << 16))
    tied = fields.flag("tie_word_embeddings", default=False)
    if fields.get("head_dim") is None and dim % heads:
        raise ConfigError(fields.where, "heads do not divide hidden_size", got=f"{heads} of {dim}")
    return LlamaConfig(
        vocab=fields.size("vocab_size"),
        context=fields.size("max_position_embeddings", 2048),
        dim=dim,
        layers=layers,
        heads=heads,
        kv_heads=fields.size("num_key_value_heads", heads),
        head_dim=fields.size("head_dim", dim // heads or 1),
        hidden=fields.size("intermediate_size"),
        tied=tied,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=_rope(fields),
        bos_id=bos,
        eos_ids=eos,
    )


def _rope(fields: Fields) -> Rope:
    """The rotary settings, as transformers 5 writes them (`rope_parameters`) or as those before."""
    where = fields.where
    theta = fields.number("rope_theta", 10000.0)
    new, old = fields.get("rope_parameters"), fields.get("rope_scaling")
    fields.only("partial_rotary_factor", 1)
    if new and old and new != old:
        raise ConfigError(where, "rope_parameters and rope_scaling disagree", got=old, want=new)
    given = new or old or {}
    name = "rope_parameters" if new else "rope_scaling"
    if not isinstance(given, dict):
        raise ConfigError(where, f"no such {name}", got=given, want="an object")
    inner = Fields(f"{where}: {name}", given)
    type_now, type_once = inner.get("rope_type"), inner.get("type")
    kind = type_now or type_once or "default"
    if kind not in ROPE_KINDS or kind == "factors":
        known = ", ".join(k for k in ROPE_KINDS if k != "factors")
        raise ConfigError(inner.where, "a rope type we cannot do", got=kind, want=known)
    inner.only("partial_rotary_factor", 1)
    inner.finish(harmless=given)
    theta = inner.number("rope_theta", theta)
    taken = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    parameters = tuple(
        (key, value if isinstance(value, bool) else inner.number(key))
        for key, value in given.items()
        if key not in taken and value is not None
    )
    return Rope(theta, cast("RopeKind", kind), parameters)
