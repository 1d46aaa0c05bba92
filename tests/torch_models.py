"""Both model families in torch, from canonical tensors: losses and gradients to compare with."""

from __future__ import annotations

import math

import numpy as np
from oracles import oracle

from orion_ane.host.loss import IGNORED
from orion_ane.models.config import GPT2Config, LlamaConfig
from orion_ane.models.weights import shapes


def tiny_llama(**changed) -> LlamaConfig:
    sizes = {"vocab": 40, "context": 16, "dim": 12, "layers": 2, "heads": 4, "kv_heads": 2}
    return LlamaConfig(**{**sizes, "head_dim": 6, "hidden": 20, "tied": True, **changed})


def tiny_gpt2(**changed) -> GPT2Config:
    sizes = {"vocab": 40, "context": 16, "dim": 12, "layers": 2, "heads": 3, "hidden": 20}
    return GPT2Config(**{**sizes, **changed})


def random_tensors(config, rng, size=0.3):
    return {
        name: (rng.normal(size=shape) * size + _is_gain(name)).astype(np.float32)
        for name, shape in shapes(config).items()
    }


def _is_gain(name: str) -> bool:
    return name.endswith(("norm", "_g"))


def learnt(config, tensors, ids, targets):
    """The mean loss over all rows and its gradient by every tensor, in float64."""
    torch = oracle("torch")
    t = {
        name: torch.tensor(array, dtype=torch.float64, requires_grad=True)
        for name, array in tensors.items()
    }
    forward = _gpt2 if isinstance(config, GPT2Config) else _llama
    logits = forward(torch, config, t, torch.tensor(np.asarray(ids)))
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(np.asarray(targets)).flatten(), ignore_index=IGNORED
    )
    loss.backward()
    return float(loss.detach()), {name: one.grad.numpy() for name, one in t.items()}


def _attend(torch, q, k, v):
    """Causal attention, q, k, v [B,H,S,D]."""
    s, d = q.shape[-2:]
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    seen = torch.ones(s, s, dtype=torch.bool).tril()
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v


def _split(x, heads):
    b, s, _ = x.shape
    return x.view(b, s, heads, -1).transpose(1, 2)


def _llama(torch, c, t, ids):
    b, s = ids.shape
    series = c.rope.theta ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim)
    angles = torch.arange(s, dtype=torch.float64)[:, None] * series
    cos, sin = (f(torch.cat([angles, angles], -1)) for f in (torch.cos, torch.sin))

    def turned(x):
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    def norm(x, gain):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c.norm_eps) * gain

    x = t["embed"][ids]
    for i in range(c.layers):
        w = {n.rpartition(".")[2]: a for n, a in t.items() if n.startswith(f"layers.{i}.")}
        h = norm(x, w["attn_norm"])
        q, k, v = (
            _split(h @ w[n].T, n_heads)
            for n, n_heads in (("wq", c.heads), ("wk", c.kv_heads), ("wv", c.kv_heads))
        )
        group = c.heads // c.kv_heads
        k, v = turned(k).repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = _attend(torch, turned(q), k, v).transpose(1, 2).reshape(b, s, -1)
        x = x + mixed @ w["wo"].T
        h = norm(x, w["ffn_norm"])
        gate = torch.nn.functional.silu(h @ w["w1"].T)
        x = x + (gate * (h @ w["w3"].T)) @ w["w2"].T
    return norm(x, t["norm"]) @ t["embed" if c.tied else "head"].T


def _gpt2(torch, c, t, ids):
    b, s = ids.shape

    def norm(x, at):
        gain, bias = t[at + "_g"], t[at + "_b"]
        return torch.nn.functional.layer_norm(x, (c.dim,), gain, bias, c.norm_eps)

    def product(x, i, which):
        return x @ t[f"layers.{i}.w{which}"].T + t[f"layers.{i}.b{which}"]

    x = t["wte"][ids] + t["wpe"][:s]
    for i in range(c.layers):
        h = norm(x, f"layers.{i}.ln1")
        q, k, v = (_split(product(h, i, which), c.heads) for which in "qkv")
        x = x + product(_attend(torch, q, k, v).transpose(1, 2).reshape(b, s, -1), i, "o")
        inner = product(norm(x, f"layers.{i}.ln2"), i, "1")
        x = x + product(torch.nn.functional.gelu(inner, approximate="tanh"), i, "2")
    return norm(x, "lnf") @ t["wte" if c.tied else "head"].T
