"""The paper's kernels of GPT-2: half a layer each, fp32 at the ports.

Prefill runs attention and feed-forward of each layer in turn; decode leaves attention over the
cache, `wo`, its residual, the last norm and the vocabulary to the host.
"""

from __future__ import annotations

from orion_ane.ir import Graph
from orion_ane.models.config import GPT2Config
from orion_ane.models.gpt2 import GPT2
from orion_ane.models.paper.builder import causal, packed
from orion_ane.nn.blocks import Precision


def prefill_attn(config: GPT2Config, precision: Precision, *, layer: int, lanes: int) -> Graph:
    """`hidden`, residual included, and the keys and values of every lane."""
    x = packed("x", config.dim, lanes, precision)
    mask = causal(lanes, precision)
    hidden, k, v = GPT2(config).attn(layer, x, mask, None, precision)
    return Graph({"x": x}, {"hidden": hidden, "k_cache": k, "v_cache": v})


def ffn(config: GPT2Config, precision: Precision, *, layer: int, lanes: int) -> Graph:
    """The norm, the feed-forward half and its residual."""
    x = packed("x", config.dim, lanes, precision)
    return Graph({"x": x}, {"hidden": GPT2(config).ffn(layer, x, precision)})


def final_ln(config: GPT2Config, precision: Precision, *, lanes: int) -> Graph:
    """The norm before the vocabulary."""
    x = packed("x", config.dim, lanes, precision)
    return Graph({"x": x}, {"hidden": GPT2(config).norm("lnf", x, precision)})


def decode_proj(config: GPT2Config, precision: Precision, *, layer: int, lanes: int = 16) -> Graph:
    """The norm and the three projections; the token is in lane 0, the others are computed too."""
    x = packed("x", config.dim, lanes, precision)
    q, k, v = GPT2(config).projections(layer, x, precision)
    return Graph({"x": x}, {"q32": q, "k32": k, "v32": v})


def decode_ffn(config: GPT2Config, precision: Precision, *, layer: int, lanes: int = 16) -> Graph:
    """`ffn` at the width of a decode run."""
    return ffn(config, precision, layer=layer, lanes=lanes)
