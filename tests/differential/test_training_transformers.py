"""Held-out loss, perplexity and gradients against transformers: the same folder, the same text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import oracle

import orion_ane
from orion_ane.models.build import decoder_of
from orion_ane.models.weights import load_checkpoint
from orion_ane.train.batch import Batch
from orion_ane.train.corpus import Tokens
from orion_ane.train.data import Windows
from orion_ane.train.evaluation import evaluate
from orion_ane.train.network import Network
from orion_ane.train.updates import Reload

torch = oracle("torch")
transformers = oracle("transformers")

SEQ = 16
TEXT = "What is held out is read once, in order; what is left at the end counts by its tokens."
FP32_SUMS = 1e-5


def gpt2():
    config = transformers.GPT2Config(
        n_embd=24,
        n_layer=2,
        n_head=3,
        vocab_size=128,
        n_positions=32,
        initializer_range=0.2,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(tied, kv_heads):
    config = transformers.LlamaConfig(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        vocab_size=128,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config)


MODELS = {
    "gpt2": gpt2,
    "llama tied grouped": lambda: llama(tied=True, kv_heads=2),
    "llama untied grouped": lambda: llama(tied=False, kv_heads=1),
    "llama untied ungrouped": lambda: llama(tied=False, kv_heads=4),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def pair(request, tmp_path):
    """A model in transformers, in double, and the tensors of its folder with their programs."""
    torch.manual_seed(5)
    theirs = request.param()
    theirs.save_pretrained(tmp_path)
    found = load_checkpoint(tmp_path)
    device = orion_ane.backend("cpu", threads=1)
    made = Network(decoder_of(found.config), found.tensors, Reload(device), host=None, lanes=SEQ)
    yield theirs.double().train(), found.tensors, made
    made.close()


def test_held_out_loss_and_perplexity_are_theirs(pair):
    theirs, tensors, made = pair
    ids = np.frombuffer(TEXT.encode(), np.uint8).astype(np.uint16)
    assert (len(ids) - 1) % SEQ  # the last window is short
    found = evaluate(made, Windows([Tokens("text", ids)], SEQ).every(2), tensors)
    total = 0.0
    for at in range(0, len(ids) - 1, SEQ):
        row = torch.tensor(ids[at : at + SEQ + 1].astype(np.int64))[None]
        with torch.no_grad():
            total += float(theirs(row, labels=row).loss) * (row.shape[1] - 1)
    assert found.tokens == len(ids) - 1
    assert found.loss == pytest.approx(total / found.tokens, rel=1e-6)
    assert found.perplexity == pytest.approx(math.exp(total / found.tokens), rel=1e-5)


def test_the_norm_of_all_gradients_is_theirs(pair):
    """Names differ and halves are laid out otherwise; the whole of them is one number."""
    theirs, tensors, made = pair
    rows = np.frombuffer(TEXT.encode(), np.uint8)[: 2 * (SEQ + 1)].reshape(2, SEQ + 1)
    found = made.gradients([Batch.of(rows)], tensors)
    loss = found.mean()
    wide = torch.tensor(rows.astype(np.int64))
    want = theirs(wide, labels=wide).loss
    want.backward()
    assert loss == pytest.approx(float(want.detach()), rel=1e-6)
    squares = sum(float((p.grad**2).sum()) for p in theirs.parameters())
    norm = sum(float((a.astype(np.float64) ** 2).sum()) for a in found.arrays.values())
    assert math.sqrt(norm) == pytest.approx(math.sqrt(squares), rel=FP32_SUMS)
