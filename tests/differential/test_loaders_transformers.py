"""Models that transformers writes, read here: every tensor in its place, every number as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
from oracles import oracle
from weightfiles import LLAMA, Gguf, llama_tensors

from orion_ane.host.rope import frequencies
from orion_ane.models.weights import load_checkpoint

torch = oracle("torch")
transformers = oracle("transformers")

FP32_ROUNDING = 1e-6


def gpt2(**options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    config = transformers.GPT2Config(**sizes, **ends, **options)
    return randomised(transformers.GPT2LMHeadModel(config))


def llama(**options):
    torch.manual_seed(0)
    settings = {
        "vocab_size": 61,
        "max_position_embeddings": 64,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    config = transformers.LlamaConfig(**settings | options)
    return randomised(transformers.LlamaForCausalLM(config))


def randomised(model):
    """Norms and biases too, which a fresh model has at 1 and 0."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model.eval()


def array(tensor):
    return tensor.detach().float().numpy()


def want_gpt2(model):
    """The canonical tensors, from the modules and not from the names in files."""
    body, c = model.transformer, model.config.n_embd
    found = {"wte": body.wte.weight, "wpe": body.wpe.weight}
    found |= {"lnf_g": body.ln_f.weight, "lnf_b": body.ln_f.bias}
    for i, block in enumerate(body.h):
        at = f"layers.{i}."
        fused, bias = block.attn.c_attn.weight, block.attn.c_attn.bias
        for k, part in enumerate("qkv"):
            found[f"{at}w{part}"] = fused[:, k * c : (k + 1) * c].T
            found[f"{at}b{part}"] = bias[k * c : (k + 1) * c]
        dense = {"o": block.attn.c_proj, "1": block.mlp.c_fc, "2": block.mlp.c_proj}
        for name, module in dense.items():
            found[f"{at}w{name}"], found[f"{at}b{name}"] = module.weight.T, module.bias
        for name, norm in (("ln1", block.ln_1), ("ln2", block.ln_2)):
            found[f"{at}{name}_g"], found[f"{at}{name}_b"] = norm.weight, norm.bias
    return {name: array(tensor) for name, tensor in found.items()}


def want_llama(model):
    body = model.model
    found = {"embed": body.embed_tokens.weight, "norm": body.norm.weight}
    if not model.config.tie_word_embeddings:
        found["head"] = model.lm_head.weight
    for i, layer in enumerate(body.layers):
        attention, mlp = layer.self_attn, layer.mlp
        parts = {
            "attn_norm": layer.input_layernorm,
            "ffn_norm": layer.post_attention_layernorm,
            "wq": attention.q_proj,
            "wk": attention.k_proj,
            "wv": attention.v_proj,
            "wo": attention.o_proj,
            "w1": mlp.gate_proj,
            "w3": mlp.up_proj,
            "w2": mlp.down_proj,
        }
        found |= {f"layers.{i}.{name}": module.weight for name, module in parts.items()}
    return {name: array(tensor) for name, tensor in found.items()}


def same(found, want):
    assert set(found.tensors) == set(want)
    for name, expected in want.items():
        assert np.array_equal(found.tensors[name], expected), name


MODELS = {
    "gpt2": (gpt2, {}, want_gpt2),
    "gpt2 narrow": (gpt2, {"n_inner": 20}, want_gpt2),
    "llama": (llama, {}, want_llama),
    "llama tied": (llama, {"tie_word_embeddings": True}, want_llama),
    "llama wide heads": (llama, {"head_dim": 12}, want_llama),
}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_transformers_writes_is_read_as_it_was(tmp_path, case, dtype):
    make, options, want = MODELS[case]
    model = make(**options).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path)
    found = load_checkpoint(tmp_path)
    same(found, want(model))
    spelled = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    assert found.stored == spelled[dtype]
    assert {a.dtype.name for a in found.tensors.values()} == {
        "float16" if dtype == "float16" else "float32"
    }
    assert (found.config.bos_id, found.config.eos_ids) == (0, (1,))


@pytest.mark.parametrize("case", ["gpt2", "llama"])
def test_shards_that_transformers_writes_are_one_model(tmp_path, case):
    make, options, want = MODELS[case]
    model = make(**options)
    model.save_pretrained(tmp_path, max_shard_size="12KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    same(load_checkpoint(tmp_path), want(model))


@pytest.mark.parametrize("case", ["gpt2", "llama tied"])
def test_a_bare_body_that_transformers_writes_is_its_model(tmp_path, case):
    make, options, want = MODELS[case]
    model = make(**options)
    model.base_model.save_pretrained(tmp_path)
    same(load_checkpoint(tmp_path), want(model))


SCALINGS = {
    "default": {},
    "linear": {"factor": 2.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("layout", ["new", "old"])
def test_rotary_settings_survive_both_layouts(tmp_path, kind, layout):
    parameters = {"rope_type": kind, "rope_theta": 3e4, **SCALINGS[kind]}
    model = llama(rope_parameters=parameters)
    model.save_pretrained(tmp_path)
    if layout == "old":  # as transformers before 5 wrote it
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        written = config.pop("rope_parameters")
        config |= {"rope_theta": written.pop("rope_theta"), "rope_scaling": written}
        path.write_text(json.dumps(config))
    config = load_checkpoint(tmp_path).config
    got, factor = frequencies(config.rope, config.head_dim, config.context)
    rotary = model.model.rotary_emb
    assert np.allclose(got, array(rotary.inv_freq), rtol=FP32_ROUNDING, atol=0)
    assert factor == pytest.approx(rotary.attention_scaling, rel=FP32_ROUNDING)


def test_transformers_reads_a_gguf_as_we_do(tmp_path, rng):
    """An outside reader agrees on which rows of a GGUF are pairs, and on every number."""
    tensors = llama_tensors(rng)
    made = Gguf().add_llama(tensors)
    made.meta["llama.vocab_size"] = LLAMA["vocab"]
    made.write(tmp_path / "model.gguf")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf")
    found = load_checkpoint(tmp_path / "model.gguf")
    same(found, want_llama(model))
    same(found, tensors)
