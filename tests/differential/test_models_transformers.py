"""Random-weight models of several shapes against transformers, through files on disk."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import orion_ane

FP32_SUMS = 1e-4  # logits, in another order of summation
CACHE_SPLITS = 1e-4  # case G19

torch = oracle("torch")
transformers = oracle("transformers")

GPT2_SIZES = {
    "tiny": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 97, "n_positions": 64},
    "odd": {"n_embd": 60, "n_layer": 3, "n_head": 5, "vocab_size": 301, "n_positions": 300},
    "wide": {
        "n_embd": 128,
        "n_layer": 2,
        "n_head": 2,
        "vocab_size": 512,
        "n_positions": 128,
        "n_inner": 200,
    },
}
LLAMA_SIZES = {
    "grouped": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "untied": {"tie_word_embeddings": False, "num_attention_heads": 4, "num_key_value_heads": 4},
    "one key head": {"num_attention_heads": 6, "num_key_value_heads": 1},
    "wide heads": {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "llama3": {
        "rope_theta": 5e5,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "yarn": {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}


def gpt2(size):
    config = transformers.GPT2Config(
        **GPT2_SIZES[size], bos_token_id=0, eos_token_id=0, initializer_range=0.2
    )
    return transformers.GPT2LMHeadModel(config)


def llama(size):
    settings = {
        "hidden_size": 48,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "vocab_size": 211,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings | LLAMA_SIZES[size]))


MODELS = [(gpt2, size) for size in GPT2_SIZES] + [(llama, size) for size in LLAMA_SIZES]


@pytest.fixture(params=MODELS, ids=lambda p: f"{p[0].__name__} {p[1]}")
def pair(request, tmp_path):
    """A model in transformers and the same, read back from its folder."""
    build, size = request.param
    torch.manual_seed(11)
    theirs = build(size).eval()
    with torch.no_grad():  # norms and biases away from the values that hide mistakes
        for name, tensor in theirs.named_parameters():
            if tensor.ndim == 1:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            del name
    theirs.save_pretrained(tmp_path)
    with orion_ane.load(str(tmp_path), device="cpu") as ours:
        yield theirs, ours


def their_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def some_ids(model, count, seed=3):
    return np.random.default_rng(seed).integers(3, model.config.vocab, count).tolist()


def test_logits_agree(pair):
    theirs, ours = pair
    ids = some_ids(ours, 50)
    assert ours.logits(ids) == pytest.approx(their_logits(theirs, ids), abs=FP32_SUMS)


def test_greedy_ids_agree_G15(pair):
    theirs, ours = pair
    ids = some_ids(ours, 9)
    with torch.no_grad():
        want = theirs.generate(
            torch.tensor([ids]),
            max_new_tokens=20,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        )[0].tolist()
    new = []
    while len(new) < 20:  # greedy past end tokens, as asked of transformers
        session_ids = [*ids, *new]
        new.append(int(ours.logits(session_ids)[-1].argmax()))
    assert session_ids[: len(ids)] + new == want


def test_a_batch_of_unequal_prompts_gives_what_each_gives_alone_G13_N05(pair):
    _, ours = pair
    prompts = [some_ids(ours, n, seed=n) for n in (7, 3, 12)]
    alone = [ours.generate(ids, max_tokens=8) for ids in prompts]
    together = ours.generate(prompts, max_tokens=8)
    assert [g.ids for g in together] == [g.ids for g in alone]
    assert len({g.prompt_ids for g in together}) == 3


def test_the_loss_agrees(pair):
    theirs, ours = pair
    ids = some_ids(ours, 40)
    with torch.no_grad():
        want = theirs(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
    assert ours.loss(ids) == pytest.approx(want, abs=1e-5)
    assert np.exp(ours.loss(ids)) == pytest.approx(np.exp(want), rel=1e-4)


@pytest.mark.parametrize("splits", [(256,), (1, 255), (100, 156), (3, 1, 1, 40, 1, 210)])
def test_cached_and_uncached_logits_agree_G19(splits, tmp_path):
    torch.manual_seed(5)
    theirs = gpt2("odd").eval()
    theirs.save_pretrained(tmp_path)
    ids = some_ids_of(301, 256)
    with orion_ane.load(str(tmp_path), device="cpu") as ours:
        session = ours.session()
        start, rows = 0, []
        for count in splits:
            rows.append(session.append(ids[start : start + count], all_logits=True))
            start += count
    got = np.concatenate(rows)
    want = their_logits(theirs, ids)
    assert got == pytest.approx(want, abs=CACHE_SPLITS)
    assert (got.argmax(1) == want.argmax(1)).all()


def some_ids_of(vocab, count):
    return np.random.default_rng(3).integers(0, vocab, count).tolist()


@pytest.mark.parametrize("which", [(gpt2, "tiny"), (llama, "grouped")], ids=["gpt2", "llama"])
def test_the_emulator_is_close_to_fp32(which, tmp_path):
    torch.manual_seed(7)
    theirs = which[0](which[1]).eval()
    theirs.save_pretrained(tmp_path)
    with orion_ane.load(str(tmp_path), device="emulator") as ours:
        ids = some_ids(ours, 30)
        got = ours.logits(ids)
    want = their_logits(theirs, ids)
    assert got == pytest.approx(want, abs=0.02 * float(np.abs(want).max()))
