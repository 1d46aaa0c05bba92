"""Small models with PEFT's adapters, for tests that compare with it."""

from __future__ import annotations

import warnings

from oracles import oracle

torch = oracle("torch")
transformers = oracle("transformers")
peft = oracle("peft")

LLAMA = {
    "two": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    "all": {"r": 3, "lora_alpha": 16, "target_modules": "all-linear"},
    "stabilised": {"r": 9, "lora_alpha": 16, "use_rslora": True, "target_modules": ["o_proj"]},
    "regex": {"r": 2, "target_modules": r".*layers\.[02]\.(self_attn\.k_proj|mlp\.down_proj)"},
    "patterns": {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["up_proj", "gate_proj", "q_proj"],
        "rank_pattern": {"layers.1.mlp.up_proj": 12, "q_proj": 1},
        "alpha_pattern": {r"layers\.[12]\.mlp\.gate_proj": 128},
    },
    "layers": {"r": 4, "target_modules": ["q_proj", "o_proj"], "layers_to_transform": [1, 2]},
    "without": {"r": 4, "target_modules": ["q_proj", "o_proj"], "exclude_modules": r".*\.1\..*"},
    "one": {
        "r": 2,
        "target_modules": ["q_proj"],
        "layers_to_transform": 1,
        "layers_pattern": "layers",
    },
    "whole names": {
        "r": 3,
        "target_modules": ["model.layers.0.self_attn.q_proj", "v_proj"],
        "layers_to_transform": [2],
        "init_lora_weights": "gaussian",
    },
    "head": {"r": 5, "target_modules": ["lm_head", "v_proj"]},
    "tables": {
        "r": 2,
        "target_modules": ["v_proj"],
        "modules_to_save": ["lm_head", "embed_tokens"],
    },
    "head alone": {"r": 2, "target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
    "tied tables": {
        "r": 2,
        "target_modules": ["v_proj"],
        "modules_to_save": ["embed_tokens"],
        "ensure_weight_tying": True,
    },
}
GPT2 = {
    "fused": {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True},
    "all": {"r": 4, "target_modules": "all-linear", "fan_in_fan_out": True},
    "inner": {"r": 4, "target_modules": ["attn.c_proj", "c_fc"], "fan_in_fan_out": True},
    "head": {"r": 4, "target_modules": ["c_attn", "lm_head"], "fan_in_fan_out": True},
    "patterns": {
        "r": 4,
        "target_modules": ["c_attn", "c_fc", "attn.c_proj"],
        "fan_in_fan_out": True,
        "use_rslora": True,
        "layers_to_transform": [1],
        "rank_pattern": {r"h\.1\.attn\.c_attn": 9},
        "alpha_pattern": {"c_fc": 32},
    },
    "head alone": {
        "r": 2,
        "target_modules": ["c_attn"],
        "fan_in_fan_out": True,
        "modules_to_save": ["lm_head"],
    },
}


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=48,
            intermediate_size=88,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            vocab_size=211,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            initializer_range=0.2,
        )
    )


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=32, n_layer=2, n_head=4, vocab_size=97, n_positions=64, initializer_range=0.2
        )
    )


def adapted(base, settings):
    """A model of theirs with an adapter whose every number counts."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about tied tables that are saved
        model = peft.get_peft_model(base, config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_" in name:
                tensor.normal_(0, 0.2)
            elif "modules_to_save" in name:
                tensor.add_(torch.randn_like(tensor) * 0.1)
    return model


def saved(model, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, save_embedding_layers=False)
