"""The six training kernels of a Llama layer, shaped by hand as the paper has them.

Each gives what `autodiff` derives from the forward graphs, but packs several values into one
port.  Residuals, the backward of the norms and the gradients of weights are the host's.

The paper's model had no positions.  Here `fwd_attn` always takes the rotary tables, and its `q_out`
and `k_out` are turned, as the products of attention read them; `sdpa_bwd2` takes the same tables
and turns the cotangents back, so that `dqf` and `dkf` are those of the products with wq and wk.
Heads lie in the order of the model's programs, [group, key head].
"""

from __future__ import annotations

from math import sqrt

from orion_ane.ir import Graph, Node
from orion_ane.models.config import LlamaConfig
from orion_ane.models.llama import Attention, Llama
from orion_ane.models.paper.builder import causal, packed, transposed, unpacked
from orion_ane.nn.blocks import Precision
from orion_ane.ops import (
    concat,
    const,
    conv1x1,
    input_,
    matmul,
    reduce_sum,
    reshape,
    sigmoid,
    slice_by_index,
    softmax,
    unbroadcast,
)
from orion_ane.types import TensorType

LANES = 256


def fwd_attn(config: LlamaConfig, precision: Precision, *, layer: int, lanes: int = LANES) -> Graph:
    """The norm, attention and `wo`, without the residual, and what the backward kernels read."""
    x = packed("x", config.dim, lanes, precision)
    tables = rotary(config, lanes, precision)
    model = Llama(config)

    def product(which: str, x: Node) -> Node:
        return model.product(layer, which, x, precision)

    a = model.attn(layer, x, tables, causal(lanes, precision), None, precision, product)
    return Graph({"x": x, "cos": tables[0], "sin": tables[1]}, attention_outputs(a))


def attention_outputs(a: Attention) -> dict[str, Node]:
    """The outputs of `fwd_attn`."""
    return {
        "wo_out": a.out,
        "q_out": a.q,
        "k_out": a.k,
        "v_out": a.v,
        "attn_out": a.mixed,
        "rms1_out": a.normed,
    }


def fwd_ffn(config: LlamaConfig, precision: Precision, *, layer: int, lanes: int = LANES) -> Graph:
    """The norm and the feed-forward half, without the residual, and its inner values."""
    x = packed("x", config.dim, lanes, precision)
    f = Llama(config).ffn(layer, x, precision)
    outputs = {"w2_out": f.out, "w1_out": f.h1, "w3_out": f.h3, "gate": f.gate}
    return Graph({"x": x}, {**outputs, "rms2_out": f.normed})


def ffn_bwd(config: LlamaConfig, precision: Precision, *, layer: int, lanes: int = LANES) -> Graph:
    """[dffn, h1, h3] to the cotangents of the norm's result and of both inner products."""
    c, at = config, f"layers.{layer}."
    inp = packed("inp", c.dim + 2 * c.hidden, lanes, precision)
    dffn, h1, h3 = unpacked(inp, c.dim, c.hidden, c.hidden)
    gate = sigmoid(h1)
    one = const(1, precision.compute)
    dgate = conv1x1(dffn, transposed(at + "w2", c.hidden, c.dim, precision))
    dh1 = dgate * h3 * gate * (one + h1 * (one - gate))  # silu' = σ(1 + h(1 - σ))
    dh3 = dgate * (h1 * gate)
    dx = conv1x1(dh1, transposed(at + "w1", c.dim, c.hidden, precision))
    dx = dx + conv1x1(dh3, transposed(at + "w3", c.dim, c.hidden, precision))
    return Graph({"inp": inp}, {"dx": dx, "dh1": dh1, "dh3": dh3})


def sdpa_bwd1(
    config: LlamaConfig, precision: Precision, *, layer: int, lanes: int = LANES
) -> Graph:
    """[q, k, v, dx2] to dv, the attention weights, computed again, and their cotangent.

    `pf` and `dpf` hold the [S,S] of each head as S channels of one port: [1, H·S, 1, S].
    """
    c, s = config, lanes
    wide, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    inp = packed("inp", wide + 2 * kv + c.dim, s, precision)
    q, k, v, dx2 = unpacked(inp, wide, kv, kv, c.dim)
    q, k, v = _queries(config, q), _keys(config, k), _keys(config, v)
    p = softmax(matmul(_scaled(q), k, tx=True) + causal(s, precision), 3)  # [G,K,S,S]
    back = transposed(f"layers.{layer}.wo", wide, c.dim, precision)
    dmixed = _queries(config, conv1x1(dx2, back))  # [G,K,D,S]
    dv = unbroadcast(matmul(dmixed, p), v.type)
    dp = matmul(dmixed, v, tx=True)
    flat = (1, c.heads * s, 1, s)
    outputs = {"dvf": reshape(dv, (1, kv, 1, s)), "pf": reshape(p, flat), "dpf": reshape(dp, flat)}
    return Graph({"inp": inp}, outputs)


def sdpa_bwd2(config: LlamaConfig, precision: Precision, *, lanes: int = LANES) -> Graph:
    """[pf, dpf, q, k] to the cotangents of the products with wq and wk; it has no weights."""
    c, s = config, lanes
    wide, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    inp = packed("inp", 2 * c.heads * s + wide + kv, s, precision)
    cos, sin = rotary(config, lanes, precision)
    pf, dpf, q, k = unpacked(inp, c.heads * s, c.heads * s, wide, kv)
    square = (c.heads // c.kv_heads, c.kv_heads, s, s)
    p, dp = reshape(pf, square), reshape(dpf, square)
    q, k = _queries(config, q), _keys(config, k)
    ds = p * (dp - reduce_sum(p * dp, (3,)))  # the Jacobian of softmax
    dq = _scaled(matmul(k, ds, ty=True))  # [G,K,D,S]
    dk = unbroadcast(matmul(_scaled(q), ds), k.type)
    dq, dk = _turned_back(dq, cos, sin), _turned_back(dk, cos, sin)
    outputs = {"dqf": reshape(dq, (1, wide, 1, s)), "dkf": reshape(dk, (1, kv, 1, s))}
    return Graph({"inp": inp, "cos": cos, "sin": sin}, outputs)


def qkv_bwd(config: LlamaConfig, precision: Precision, *, layer: int, lanes: int = LANES) -> Graph:
    """[dq, dk, dv] to the cotangent of the norm's result."""
    c = config
    wide, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    inp = packed("inp", wide + 2 * kv, lanes, precision)
    parts = zip("qkv", unpacked(inp, wide, kv, kv), strict=True)
    dx, *others = (
        conv1x1(part, transposed(f"layers.{layer}.w{which}", c.dim, part.type.shape[1], precision))
        for which, part in parts
    )
    for other in others:
        dx = dx + other
    return Graph({"inp": inp}, {"dx": dx})


def rotary(config: LlamaConfig, lanes: int, precision: Precision) -> tuple[Node, Node]:
    """The inputs `cos` and `sin`, [1,1,D,S] each (see `Llama.tables`)."""
    of = TensorType(precision.compute, (1, 1, config.head_dim, lanes))
    return input_("cos", of), input_("sin", of)


def _queries(config: LlamaConfig, x: Node) -> Node:
    c = config
    return reshape(x, (c.heads // c.kv_heads, c.kv_heads, c.head_dim, x.type.shape[3]))


def _keys(config: LlamaConfig, x: Node) -> Node:
    return reshape(x, (1, config.kv_heads, config.head_dim, x.type.shape[3]))


def _scaled(x: Node) -> Node:
    """x / √D, for x [..,D,S]."""
    return x * const(1 / sqrt(x.type.shape[2]), x.type.dtype)


def _turned_back(dy: Node, cos: Node, sin: Node) -> Node:
    """The cotangent of x where `dy` is that of rotate(x, cos, sin)."""
    *lead, d, s = dy.type.shape
    zeros, moved = (0,) * len(lead), dy * sin
    low = slice_by_index(moved, (*zeros, 0, 0), (*lead, d // 2, s))
    high = slice_by_index(moved, (*zeros, d // 2, 0), (*lead, d, s))
    return dy * cos + concat(high, -low, axis=len(lead))
