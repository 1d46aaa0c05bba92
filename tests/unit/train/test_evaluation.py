from __future__ import annotations

import math

import numpy as np
import pytest
from torch_models import learnt, random_tensors, tiny_llama

import orion_ane
from orion_ane.host.score import Score
from orion_ane.models.build import decoder_of
from orion_ane.train.corpus import Tokens
from orion_ane.train.data import Windows
from orion_ane.train.evaluation import evaluate
from orion_ane.train.network import Network
from orion_ane.train.updates import Reload


@pytest.mark.parametrize(("total", "tokens", "want"), [(7, 4, 5.754603), (3, 1, 20.085537)])
def test_perplexity_is_of_all_tokens_alike_D11(total, tokens, want):
    assert Score(total / tokens, tokens).perplexity == pytest.approx(want, abs=1e-6)


def test_a_hopeless_model_has_a_perplexity():
    assert Score(1e4, 1).perplexity == math.inf


def test_held_out_loss_is_torchs(rng):
    config = tiny_llama()
    tensors = random_tensors(config, rng)
    ids = rng.integers(0, config.vocab, 30).astype(np.uint16)
    device = orion_ane.backend("cpu", threads=1)
    network = Network(decoder_of(config), tensors, Reload(device), host=None, lanes=8)
    found = evaluate(network, Windows([Tokens("x", ids)], 8).every(2), tensors)
    wide = ids.astype(np.int64)
    rows = [wide[at : at + 9] for at in (0, 8, 16, 24)]
    losses = [learnt(config, tensors, [row[:-1]], [row[1:]])[0] * (len(row) - 1) for row in rows]
    assert found.tokens == 29
    assert found.loss == pytest.approx(sum(losses) / 29, rel=1e-6)
